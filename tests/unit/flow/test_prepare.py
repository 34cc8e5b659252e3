# SPDX-License-Identifier: Apache-2.0
"""Texts are estimated in limited children: what one text does costs neither other users nor colocd.

A child that is to take long or to fail is made by a stand-in for the estimator in the warm process:
its own limits and everything around it are the real ones.
"""

import asyncio
import base64
import os
import signal
import sys
import textwrap
import zlib
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from slurm_coloc.config import EstimateConfig
from slurm_coloc.core.decide.decision import Reason
from slurm_coloc.core.decide.prepared import Estimated, Prepared
from slurm_coloc.errors import ConfigError
from slurm_coloc.estimate.request import WARM_UP, Given
from slurm_coloc.flow.prepare import children, estimates
from slurm_coloc.flow.prepare.estimates import Estimates
from slurm_coloc.flow.prepare.remembered import Remembered
from slurm_coloc.flow.prepare.turns import MAX_WAITING, Turns, Work
from tests.unit.estimate.bombs import BOMBS, pack
from tests.unit.estimate.texts import NAMES, example

ROOT = Path(__file__).resolve().parents[3]
ADA, BEN, CLEO = 1001, 1002, 1003
GIVEN = Given(batch_size=32)
PATIENT: dict[str, Any] = {"time_limit_ms": 60_000}  # a busy machine may need longer
Found = TypeVar("Found")

#: what a text that begins with a word does in a child
FAULTY = """
import os, signal, sys, time
from slurm_coloc.estimate import variants
from slurm_coloc.estimate.packed import unpack_summary
real = variants.prepared
def prepared(packed, given, defaults):
    text = unpack_summary(packed)
    if text.startswith("spin"):
        while True:
            pass
    if text.startswith("wait"):
        time.sleep(600)
    if text.startswith("pause"):
        time.sleep(0.5)
    if text.startswith("memory"):
        held = []
        while True:
            held.append(bytearray(1 << 20))
    if text.startswith("raise"):
        raise ValueError("what the text holds")
    if text.startswith("signal"):
        os.kill(os.getpid(), signal.SIGSEGV)
    if text.startswith("write"):
        os.write(os.memfd_create("any file"), b"x")
    if text.startswith("fork"):
        os.fork()
    if text.startswith("files"):
        held = [open("/dev/null") for _ in range(100)]
    if text.startswith("answer"):
        class Odd:
            def as_json(self):
                return {"schema": 7}
        return Odd()
    return real(packed, given, defaults)
variants.prepared = prepared
from slurm_coloc.flow.prepare import warm
sys.exit(warm.main())
"""


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Estimators that do what a text says."""
    (tmp_path / "faulty_estimators.py").write_text(FAULTY)
    monkeypatch.setattr(children, "PROGRAM", "faulty_estimators")
    monkeypatch.setattr(children, "PACKAGES", f"{children.PACKAGES}:{tmp_path}")


def with_estimates(work: Callable[[Estimates], Awaitable[Found]], **config: Any) -> Found:
    """What ``work`` gives with estimates that are ready."""

    async def run() -> Found:
        made = Estimates(EstimateConfig(**PATIENT | config))
        try:
            await made.start()
            await asyncio.wait_for(made._children._ready.wait(), 60)
            return await work(made)
        finally:
            made.close()

    return asyncio.run(run())


def alone(found: Prepared) -> Estimated:
    return found.of("", "", 1)


def why(found: Prepared) -> tuple[Reason, str]:
    one = alone(found)
    assert one.estimate is None
    return one.no_estimate, one.detail


async def until(what: Callable[[], Found], limit_s: float = 60) -> Found:
    """The first true value of ``what``."""
    for _ in range(int(limit_s / 0.02)):
        if found := what():
            return found
        await asyncio.sleep(0.02)
    raise AssertionError(f"not within {limit_s} s")


def children_of(made: Estimates) -> list[int]:
    """Processes that estimate a text now."""
    pid = made._children.pid
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def honest(number: int = 0) -> str:
    """A text that nobody sent before, by its number."""
    return WARM_UP.replace("72,010", f"{72_010 + number:,}").replace(
        "72,234", f"{72_234 + number:,}"
    )


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
    assert {(one.stack, one.several) for one in found.variants} == {
        (name, several) for name in ("", "a100", "h100") for several in (False, True)
    }
    uppers = [found.of(name, "", 1).estimate for name in ("a100", "h100", "")]
    assert all(uppers) and uppers == sorted(uppers, key=lambda one: one.upper_mib if one else 0)


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
        ("answer", Reason.NO_ESTIMATE, "the estimator failed: prepared estimate: schema"),
    ],
)
def test_what_a_text_does_ends_its_child_alone_and_is_remembered(
    faulty: None, text: str, reason: Reason, detail: str
) -> None:
    if text == "fork" and os.geteuid() == 0:
        pytest.skip("root may start as many processes as it likes")

    async def work(made: Estimates) -> None:
        warm = made._children.pid
        found = await made.prepare(ADA, pack(text), GIVEN)
        assert why(found)[0] is reason and why(found)[1].startswith(detail), why(found)
        assert "what the text holds" not in why(found)[1]
        await until(lambda: not children_of(made))
        assert made._children.pid == warm
        again = await made.prepare(BEN, pack(text), Given(batch_size=1))
        assert again is found, "nobody has it tried again, with other options either"
        assert alone(await made.prepare(ADA, pack(honest()), GIVEN)).estimate

    with_estimates(work, cpu_limit_ms=200)


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


def test_a_user_has_one_child_at_a_time_and_others_have_theirs(faulty: None) -> None:
    async def work(made: Estimates) -> None:
        mine = [
            asyncio.create_task(made.prepare(ADA, pack(f"wait{number}"), GIVEN))
            for number in range(5)
        ]
        await until(lambda: children_of(made))
        assert alone(await made.prepare(BEN, pack(honest(1)), GIVEN)).estimate
        await until(lambda: len(children_of(made)) == 1)
        found = await asyncio.gather(*mine)
        assert why(found[0])[0] is Reason.SLOW_ESTIMATE, "its own time was over"
        assert [why(one)[0] for one in found[1:]] == [Reason.USER_BUSY] * 4
        assert not any(one.lasting for one in found)

    with_estimates(work, time_limit_ms=1500, workers=4)


def test_texts_of_one_user_are_estimated_one_after_another(faulty: None) -> None:
    """sbatch in the background: nobody loses a share for it."""

    async def work(made: Estimates) -> None:
        texts = [f"pause\n{honest(number)}" for number in range(4)]
        found = await asyncio.gather(*(made.prepare(ADA, pack(one), GIVEN) for one in texts))
        assert all(alone(one).estimate for one in found)

    with_estimates(work)


def test_users_whose_texts_took_too_much_leave_a_worker_to_the_others(faulty: None) -> None:
    async def work(made: Estimates) -> None:
        first = [made.prepare(uid, pack(f"spin {uid}"), GIVEN) for uid in (ADA, BEN)]
        assert {why(one)[0] for one in await asyncio.gather(*first)} == {Reason.SLOW_ESTIMATE}
        more = [
            asyncio.create_task(made.prepare(uid, pack(f"wait {uid}"), GIVEN)) for uid in (ADA, BEN)
        ]
        await until(lambda: children_of(made))
        assert alone(await made.prepare(CLEO, pack(honest()), GIVEN)).estimate
        await until(lambda: len(children_of(made)) == 1)
        for task in more:
            task.cancel()

    with_estimates(work, cpu_limit_ms=200)


def test_the_same_text_at_the_same_time_is_estimated_once(faulty: None) -> None:
    async def work(made: Estimates) -> None:
        packed = pack(f"pause\n{honest()}")
        many = [asyncio.create_task(made.prepare(ADA, packed, GIVEN)) for _ in range(30)]
        await until(lambda: children_of(made))
        many += [asyncio.create_task(made.prepare(BEN, packed, GIVEN)) for _ in range(30)]
        found = await asyncio.gather(*many)
        assert all(one is found[0] for one in found) and alone(found[0]).estimate

    with_estimates(work)


def test_who_stops_waiting_finds_the_answer_next_time(faulty: None) -> None:
    async def work(made: Estimates) -> None:
        packed = pack(f"pause\n{honest()}")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(made.prepare(ADA, packed, GIVEN), 0.2)
        await until(lambda: len(made._kept))
        assert alone(await made.prepare(BEN, packed, GIVEN)).estimate

    with_estimates(work)


def test_a_text_that_nobody_waits_for_any_more_is_not_begun(faulty: None) -> None:
    async def work(made: Estimates) -> None:
        tasks = [
            asyncio.create_task(made.prepare(ADA, pack(f"wait {number}"), GIVEN))
            for number in range(3)
        ]
        await until(lambda: children_of(made))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert made._turns.next(lambda uid: False) is None

    with_estimates(work, workers=4)


def test_more_texts_of_one_user_than_may_wait_are_refused_at_once(faulty: None) -> None:
    async def work(made: Estimates) -> None:
        tasks = [
            asyncio.create_task(made.prepare(ADA, pack(f"wait {number}"), GIVEN))
            for number in range(MAX_WAITING + 1)
        ]
        await until(lambda: children_of(made))
        assert why(await made.prepare(ADA, pack("wait more"), GIVEN))[0] is Reason.USER_BUSY
        for task in tasks:
            task.cancel()

    with_estimates(work)


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


@pytest.fixture
def work_of() -> Iterator[Callable[[int, str], Work]]:
    loop = asyncio.new_event_loop()
    yield lambda uid, key: Work(uid, key, key, "", {}, loop.create_future())
    loop.close()


def test_users_take_turns(work_of: Callable[[int, str], Work]) -> None:
    """One who sends many waits behind one who sends two."""
    turns = Turns(2)
    assert all(turns.add(work_of(ADA, key)) for key in "abcd")
    assert all(turns.add(work_of(BEN, key)) for key in "xy")
    order = ""
    while work := turns.next(lambda uid: False):  # one worker is free at a time
        order += work.key
        turns.over(work)
    assert order == "axbycd"


def test_costly_users_leave_a_worker_free(work_of: Callable[[int, str], Work]) -> None:
    turns = Turns(2)
    assert all(turns.add(work_of(uid, str(uid))) for uid in (ADA, BEN, CLEO))
    running = [turns.next(lambda uid: uid != CLEO) for _ in range(3)]
    assert [one and one.uid for one in running] == [ADA, CLEO, None]


def test_what_is_remembered_is_bounded_and_ends() -> None:
    now = [0.0]
    kept: Remembered[int] = Remembered(2, 10.0, lambda: now[0])
    for number, key in enumerate("abc"):
        kept.put(key, number)
    assert [kept.get(key) for key in "abc"] == [None, 1, 2]
    kept.get("b")
    kept.put("d", 3)
    assert [kept.get(key) for key in "bcd"] == [1, None, 3]
    now[0] = 11.0
    assert kept.get("b") is None and len(kept) == 1


def test_an_estimator_that_cannot_run_is_a_wrong_configuration(tmp_path: Path) -> None:
    (tmp_path / "a100.toml").write_text("context = 1\n")
    with pytest.raises(ConfigError, match=r"a100\.toml"):
        Estimates(EstimateConfig(stacks_dir=tmp_path))


def test_a_forwarded_text_is_as_the_plugin_packs_it() -> None:
    assert zlib.decompress(base64.b64decode(pack("x"))) == b"x"
