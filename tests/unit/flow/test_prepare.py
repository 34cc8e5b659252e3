# SPDX-License-Identifier: Apache-2.0
"""Texts are estimated in limited children: what one does costs neither other users nor colocd."""

import asyncio
import base64
import os
import signal
import sys
import textwrap
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_coloc.config import EstimateConfig
from slurm_coloc.core.decide.decision import Reason
from slurm_coloc.core.decide.optimizers import OPTIMIZERS
from slurm_coloc.core.decide.prepared import Prepared
from slurm_coloc.errors import ConfigError
from slurm_coloc.estimate.request import WARM_UP, Given
from slurm_coloc.flow.prepare import children, estimates
from slurm_coloc.flow.prepare.estimates import Estimates
from tests.unit.estimate.bombs import BOMBS, pack
from tests.unit.estimate.texts import NAMES, example
from tests.unit.flow.preparing import (
    ADA,
    BEN,
    GIVEN,
    alone,
    children_of,
    faulty,
    honest,
    until,
    why,
    with_estimates,
)

__all__ = ["faulty"]

ROOT = Path(__file__).resolve().parents[3]


def test_a_text_has_an_estimate_for_one_process_and_for_several() -> None:
    found = with_estimates(lambda made: made.prepare(ADA, pack(WARM_UP), GIVEN))
    one, several = found.of("", "a100-40gb", 1).estimate, found.of("", "", 4).estimate
    assert one and several and one.upper_mib < several.upper_mib
    assert one.smact is not None and several.smact is None, "the card is not known"


@pytest.mark.parametrize("name", NAMES)
def test_a_child_has_enough_for_every_example(name: str) -> None:
    """In the default configuration but for the time, which is the machine's."""
    found = with_estimates(lambda made: made.prepare(ADA, pack(example(name)), GIVEN))
    assert alone(found).estimate, alone(found).detail


def test_all_gpu_types_that_were_calibrated_have_theirs(tmp_path: Path) -> None:
    for name, context in (("a100", 400), ("h100", 900)):
        (tmp_path / f"{name}.toml").write_text(f"context_mib = {context}\n")
    found = with_estimates(
        lambda made: made.prepare(ADA, pack(WARM_UP), GIVEN), stacks_dir=tmp_path
    )
    assert {(one.stack, one.processes) for one in found.variants} == {
        (name, processes) for name in ("", "a100", "h100") for processes in (1, 2)
    }
    uppers = [found.of(name, "", 1).estimate for name in ("a100", "h100", "")]
    assert all(uppers) and uppers == sorted(uppers, key=lambda one: one.upper_mib if one else 0)


def test_what_else_a_training_does() -> None:
    """Gradients that live on, a compiled model, blocks run again, and what is divided."""

    def asked(training: str | None, processes: int = 1) -> tuple[int, int, str]:
        given = replace(GIVEN, training=training)
        found = with_estimates(
            lambda made: made.prepare(ADA, pack(example("vit_small_torchinfo.txt")), given)
        )
        one = found.of("", "", processes)
        assert one.estimate is not None, one.detail
        return one.estimate.memory_mib, one.estimate.upper_mib, one.key

    plain, kept = asked(None), asked("accumulate")
    assert plain[0] < kept[0] and kept[2] == f"{plain[2]}/accumulate"
    assert asked("checkpoint")[0] < 0.8 * plain[0]
    compiled = asked("compile")
    assert (compiled[0], compiled[1] > 1.2 * plain[1]) == (plain[0], True)
    assert asked("fsdp")[0] == plain[0]  # nothing is divided by one
    divided = [asked("fsdp", processes)[0] for processes in (2, 3, 4, 8, 16)]
    assert divided[0] == divided[1] > divided[2] > divided[3] == divided[4]
    assert asked("zero1", 8)[0] > divided[3]
    assert asked("zero3", 8)[:2] == asked("fsdp", 8)[:2]


def test_what_is_wrong_with_a_text_is_told() -> None:
    async def work(made: Estimates) -> list[Reason]:
        packed = ("%%%", pack("no model"), "x" * 70_000, base64.b64encode(b"x").decode())
        return [why(await made.prepare(ADA, one, GIVEN))[0] for one in packed]

    assert with_estimates(work) == [Reason.BAD_SUMMARY] * 4


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_gets_an_answer_and_the_next_text_an_estimate(name: str) -> None:
    async def work(made: Estimates) -> tuple[Prepared, Prepared]:
        bomb = await made.prepare(ADA, pack(BOMBS[name]()), GIVEN)
        return bomb, await made.prepare(ADA, pack(WARM_UP), GIVEN)

    bomb, after = with_estimates(work)
    assert alone(bomb).no_estimate in (
        Reason.BAD_SUMMARY, Reason.NO_ESTIMATE, Reason.SLOW_ESTIMATE
    )  # fmt: skip
    assert "failed" not in alone(bomb).detail
    assert alone(after).estimate


@pytest.mark.parametrize(
    ("text", "reason", "detail"),
    [
        ("spin", Reason.SLOW_ESTIMATE, "it takes more than 0.2 s of processor time"),
        ("memory", Reason.NO_ESTIMATE, "the summary takes more than 96 MiB to read"),
        ("signal", Reason.NO_ESTIMATE, "the estimator failed: status -11"),
        ("raise", Reason.NO_ESTIMATE, "the estimator failed: ValueError in"),
        ("write", Reason.NO_ESTIMATE, "the estimator failed: OSError"),
        ("fork", Reason.NO_ESTIMATE, "the estimator failed: BlockingIOError"),
        ("files", Reason.NO_ESTIMATE, "the estimator failed: OSError"),
    ],
)
def test_what_a_text_does_ends_its_child_alone_and_is_remembered(
    faulty: None, monkeypatch: pytest.MonkeyPatch, text: str, reason: Reason, detail: str
) -> None:
    monkeypatch.setattr(estimates, "WALL", 300)  # the child has a lower priority: a busy machine
    if text == "fork" and os.geteuid() == 0:
        pytest.skip("root may start as many processes as it likes")

    async def work(made: Estimates) -> None:
        warm = made._children.pid
        found = await made.prepare(ADA, pack(text), GIVEN)
        assert why(found)[0] is reason and why(found)[1].startswith(detail), why(found)
        assert "what the text holds" not in why(found)[1]
        await until(lambda: not children_of(made))
        assert made._children.pid == warm
        assert await made.prepare(BEN, pack(text), GIVEN) is found, "nobody has it tried again"
        again = await made.prepare(ADA, pack(text), Given(batch_size=1))
        assert again == replace(found, lasting=False), "with other options neither, for its user"
        assert alone(await made.prepare(ADA, pack(honest()), GIVEN)).estimate

    # What fills memory first on a quick machine may compute for longer on a slow one.
    with_estimates(work, cpu_limit_ms=200 if text == "spin" else 5000)


def test_what_one_user_s_options_cost_is_not_held_against_another_s(
    faulty: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same text: a summary that a group shares."""
    monkeypatch.setattr(estimates, "WALL", 100)
    text = pack(f"costly options\n{honest()}")

    async def work(made: Estimates) -> None:
        found = await made.prepare(ADA, text, Given(training="zero3"))
        assert why(found)[0] is Reason.SLOW_ESTIMATE, why(found)
        again = await made.prepare(ADA, text, GIVEN)
        assert why(again)[0] is Reason.SLOW_ESTIMATE and not again.lasting
        assert alone(await made.prepare(BEN, text, GIVEN)).estimate

    with_estimates(work, cpu_limit_ms=500)


def test_an_answer_of_another_form_is_our_defect_and_not_the_text_s(faulty: None) -> None:
    async def work(made: Estimates) -> None:
        found = await made.prepare(ADA, pack("answer"), GIVEN)
        assert why(found) == (Reason.NO_ESTIMATE, "prepared estimate: schema: not as it is written")
        assert not found.lasting

    with_estimates(work)


def test_the_longest_options_cross_the_border() -> None:
    """Each at its longest: what is written is read."""
    longest = Given(
        batch_size=1_000_000,
        optimizer=max(OPTIMIZERS, key=len),
        precision="bf16",
        input="3x1024x1024",
        training="accumulate,compile,checkpoint,zero3",
    )
    made = with_estimates(lambda one: one.prepare(ADA, pack(WARM_UP), longest))
    assert made.variants, alone(made).detail
    assert all(len(one.estimated.options) > 64 for one in made.variants)


def test_a_child_that_waits_is_ended_and_tried_again_next_time(
    faulty: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child of a busy machine says nothing of its text."""
    monkeypatch.setattr(estimates, "WALL", 2)

    async def work(made: Estimates) -> None:
        found = await made.prepare(ADA, pack("wait"), GIVEN)
        assert why(found) == (Reason.SLOW_ESTIMATE, "over 0.4 s") and not found.lasting
        again = await made.prepare(ADA, pack("wait"), GIVEN)
        assert again == found and again is not found

    with_estimates(work, cpu_limit_ms=200)


def test_the_warm_process_is_started_again_when_it_ends() -> None:
    async def work(made: Estimates) -> None:
        warm = made._children.pid
        assert warm is not None
        os.kill(warm, signal.SIGKILL)
        await until(lambda: made._children.pid not in (warm, None))
        assert alone(await made.prepare(ADA, pack(honest()), GIVEN)).estimate

    with_estimates(work)


def test_what_it_was_estimating_when_it_ended_is_not_held_against_the_text(faulty: None) -> None:
    async def work(made: Estimates) -> None:
        task = asyncio.create_task(made.prepare(ADA, pack(f"pause\n{honest()}"), GIVEN))
        (child,) = await until(lambda: children_of(made))
        assert made._children.pid is not None
        os.kill(made._children.pid, signal.SIGKILL)
        assert why(await task) == (Reason.NO_ESTIMATE, "the estimating process ended")
        await until(lambda: not Path(f"/proc/{child}").exists())
        again = await made.prepare(ADA, pack(f"pause\n{honest()}"), GIVEN)
        assert alone(again).estimate

    with_estimates(work)


def test_a_child_that_the_kernel_killed_for_memory_says_nothing_of_its_text(faulty: None) -> None:
    async def work(made: Estimates) -> None:
        task = asyncio.create_task(made.prepare(ADA, pack("wait"), GIVEN))
        (child,) = await until(lambda: children_of(made))
        assert Path(f"/proc/{child}/oom_score_adj").read_text().strip() == "1000"
        os.kill(child, signal.SIGKILL)
        found = await task
        assert why(found)[0] is Reason.NO_ESTIMATE and not found.lasting

    with_estimates(work)


def test_nothing_is_left_when_colocd_is_killed(faulty: None, tmp_path: Path) -> None:
    """No child goes on, not even one that no longer answers."""
    program = tmp_path / "colocd.py"
    program.write_text(
        textwrap.dedent(
            f"""
            import asyncio
            from slurm_coloc.config import EstimateConfig
            from slurm_coloc.estimate.request import Given
            from slurm_coloc.flow.prepare import children
            from slurm_coloc.flow.prepare.estimates import Estimates
            children.PROGRAM, children.PACKAGES = {children.PROGRAM!r}, {children.PACKAGES!r}
            async def run():
                made = Estimates(EstimateConfig(time_limit_ms=60000))
                await made.start()
                print(made._children.pid, flush=True)
                await made.prepare(1, {pack("wait")!r}, Given())
            asyncio.run(run())
            """
        )
    )

    async def run() -> None:
        colocd = await asyncio.create_subprocess_exec(
            sys.executable, str(program), stdout=asyncio.subprocess.PIPE, cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert colocd.stdout
        warm = int(await colocd.stdout.readline())
        at = Path(f"/proc/{warm}/task/{warm}/children")
        (child,) = await until(lambda: at.read_text().split())
        colocd.kill()
        await colocd.wait()
        await until(lambda: not Path(f"/proc/{child}").exists())
        await until(lambda: not Path(f"/proc/{warm}").exists())

    asyncio.run(run())


def test_what_a_child_may(faulty: None) -> None:
    """As the kernel shows it."""

    async def work(made: Estimates) -> None:
        task = asyncio.create_task(made.prepare(ADA, pack("wait"), GIVEN))
        (child,) = await until(lambda: children_of(made))
        proc = Path(f"/proc/{child}")
        await until(lambda: "Max file size             0 " in (proc / "limits").read_text())
        limits = (proc / "limits").read_text().splitlines()
        at_most = {line[:26].strip(): line[26:].split()[0] for line in limits}
        assert (at_most["Max processes"], at_most["Max open files"]) == ("0", "16")
        assert at_most["Max cpu time"] == "2" and at_most["Max core file size"] == "0"
        assert 96 * 2**20 < int(at_most["Max address space"]) < 256 * 2**20
        assert "NoNewPrivs:\t1" in (proc / "status").read_text()
        opened = {link.name: str(link.readlink()) for link in (proc / "fd").iterdir()}
        assert set(opened) == {"0", "1", "2"} and opened["1"] == opened["2"] == "/dev/null"
        task.cancel()

    with_estimates(work)


def test_an_estimator_that_cannot_run_is_a_wrong_configuration(tmp_path: Path) -> None:
    (tmp_path / "a100.toml").write_text("context = 1\n")
    with pytest.raises(ConfigError, match=r"a100\.toml"):
        Estimates(EstimateConfig(stacks_dir=tmp_path))


def test_a_forwarded_text_is_as_the_plugin_packs_it() -> None:
    assert zlib.decompress(base64.b64decode(pack("x"))) == b"x"
