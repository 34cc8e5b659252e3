# SPDX-License-Identifier: Apache-2.0
"""The pyslurm client over a stand-in: the worker's answers, time limits, crashes, and the fallback.

The commands beside it are scripts that write down what they were asked. With the real pyslurm the
last test runs against the real cluster that $SLURM_CONF names.
"""

import asyncio
import importlib.util
import json
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from slurm_coloc.adapters.slurm import connect
from slurm_coloc.adapters.slurm.bindings import MAX_DEATHS, SlurmBindings, description
from slurm_coloc.adapters.slurm.commands import SlurmCommands
from slurm_coloc.config import DaemonConfig
from slurm_coloc.errors import SlurmError

STANDIN = Path(__file__).parent / "standin"
T = TypeVar("T")
Ask = Callable[[SlurmBindings], Coroutine[Any, Any, T]]


class Site:
    """A machine with the stand-in and with commands that only write down what they were asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.behave("ok")
        self.running("25.11.4")
        for name in ("scontrol", "squeue"):
            path = folder / name
            path.write_text(
                "#!/bin/sh\n"
                f'[ "$*" != "show config" ] || {{ cat {folder}/config && exit\n'
                'echo "error: Unable to contact slurm controller" >&2; exit 1; }\n'
                f'echo "$0 $*" >>{folder}/commands\n'
            )
            path.chmod(0o755)

    def running(self, version: str) -> None:
        """slurmctld's release; "" for one that answers nobody."""
        path = self.folder / "config"
        path.write_text(f"SLURM_VERSION = {version}\n") if version else path.unlink()

    def behave(self, mode: str) -> None:
        (self.folder / "mode").write_text(mode)

    @property
    def orders(self) -> list[Any]:
        path = self.folder / "mode.log"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def commands(self) -> str:
        path = self.folder / "commands"
        return path.read_text() if path.exists() else ""

    def ask(self, ask: Ask[T], timeout_s: float = 30.0, forced: bool = False) -> T:
        async def run() -> T:
            slurm = SlurmBindings(timeout_s, self.folder, forced)
            try:
                return await ask(slurm)
            finally:
                await slurm._child.close()

        return asyncio.run(run())


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setenv("STANDIN", str(tmp_path / "mode"))
    monkeypatch.setenv("PYTHONPATH", str(STANDIN))
    return Site(tmp_path)


async def code(ask: Coroutine[Any, Any, object]) -> str:
    try:
        await ask
    except SlurmError as err:
        return err.code
    return ""


def test_a_job(site: Site) -> None:
    view = site.ask(lambda slurm: slurm.job(7))
    assert view is not None and view.handle == "7"
    assert (view.state, view.reason, view.exit_code, view.restarts) == (
        "FAILED",
        "NonZeroExitCode",
        1,
        0,
    )
    assert (view.tres_per_node, view.nodes, view.uid, view.qos) == (
        "gres/shard:12",
        "n1",
        1000,
        "normal",
    )
    assert (view.submit_s, view.start_s, view.end_s) == (100.0, 101.0, 102.0)
    assert view.requeue and view.batch
    assert site.ask(lambda slurm: slurm.job(99)) is None
    assert site.commands == ""


def test_arrays(site: Site) -> None:
    first = site.ask(lambda slurm: slurm.job(20))
    assert first is not None and (first.handle, first.state) == ("20_2", "PENDING")
    assert first.dependency == "afterany:9,afterok:7(unfulfilled),afterok:8(unfulfilled)"
    views = site.ask(lambda slurm: slurm.jobs_of([1000]))
    assert [view.handle for view in views] == ["7", "20_2", "20_5", "20_7", "20_0", "20_1"]
    assert (views[-1].state, views[-1].completing) == ("FAILED", True)


def test_a_request_per_task_is_asked_of_the_commands(site: Site) -> None:
    site.ask(lambda slurm: slurm.job(40))
    assert "squeue --noheader --states=all --array --jobs=40\n" in site.commands
    before = site.commands
    site.ask(lambda slurm: slurm.jobs_of([1001]))
    asked = site.commands.removeprefix(before)
    assert "--jobs=40" in asked and "--user" not in asked  # about that job alone


def test_a_sigkill_is_asked_of_the_commands(site: Site) -> None:
    """pyslurm shows 137 as 9, which a program may also end with."""
    site.ask(lambda slurm: slurm.job(50))
    assert "squeue --noheader --states=all --array --jobs=50\n" in site.commands


def test_orders(site: Site) -> None:
    async def run(slurm: SlurmBindings) -> None:
        await slurm.requeue_hold("7")
        await slurm.set_gres("7", "gres/gpu:1")
        await slurm.release("7")
        await slurm.update("7", Priority=100_000, StartTime="now+5")
        await slurm.requeue("7")
        await slurm.hold("7")
        assert site.commands == ""
        await slurm.release("20_5")
        await slurm.update("7", TimeLimit=10)

    site.ask(run)
    assert site.orders == [
        ["requeue", 7, True],
        ["modify", 7, {"gres_per_node": "gpu:1"}],
        ["release", 7],
        ["modify", 7, {"priority": 100_000, "begin_time": "now+5"}],
        ["requeue", 7, False],
        ["hold", 7],
    ]
    told = site.commands.replace(f"{site.folder}/", "")
    assert told == "scontrol release 20_5\nscontrol update JobId=7 TimeLimit=10\n"


def test_what_a_description_cannot_say() -> None:
    assert description({"TresPerNode": "gres/shard:a100:5,gres/x:1"}) == {
        "gres_per_node": "shard:a100:5,x:1"
    }
    for fields in ({"TresPerNode": "license/a:1"}, {"Nice": 0}, {"QOS": ""}, {"MinMemoryNode": 7}):
        assert description(dict(fields)) is None


def test_a_blocked_library_is_killed_and_started_again(site: Site) -> None:
    async def run(slurm: SlurmBindings) -> None:
        assert await slurm.job(7) is not None
        site.behave("hang")
        slurm._child._timeout_s = 0.5
        began = time.monotonic()
        assert await code(slurm.job(7)) == "slurm-away"
        assert time.monotonic() - began < 10
        site.behave("ok")
        slurm._child._timeout_s = 30
        assert await slurm.job(7) is not None

    site.ask(run)
    assert site.commands == ""


def test_a_crash_is_survived_and_many_lead_to_the_commands(site: Site) -> None:
    async def run(slurm: SlurmBindings) -> None:
        assert await slurm.job(7) is not None
        site.behave("crash")
        assert await code(slurm.hold("7")) == "slurm-away"
        site.behave("ok")
        assert await slurm.job(7) is not None
        site.behave("crash-hold")
        for _ in range(MAX_DEATHS - 1):
            assert await code(slurm.hold("7")) == "slurm-away"
        assert site.commands == ""
        await slurm.hold("7")
        assert site.commands.endswith("scontrol hold 7\n")

    site.ask(run)


@pytest.mark.parametrize("mode", ["no-library", "crash-at-load", "newer", "other-hold"])
def test_a_pyslurm_that_does_not_fit(
    site: Site, mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One log line, and the commands from then on; an error where it was asked for by name."""
    site.behave(mode)
    site.running("26.05.1" if mode == "newer" else "25.11.4")

    async def twice(slurm: SlurmBindings) -> None:
        await slurm.hold("7")
        await slurm.hold("7")

    site.ask(twice)
    assert site.commands.count("scontrol hold 7\n") == 2
    said = capsys.readouterr()
    assert (said.out + said.err).count("the commands are used") == 1
    assert site.ask(lambda slurm: code(slurm.hold("7")), forced=True) == "no-pyslurm"


def test_away_refused_and_printing(site: Site) -> None:
    async def run(slurm: SlurmBindings) -> None:
        for mode, expected in (("ok", ""), ("away", "slurm-away"), ("refuse", "slurm-refused")):
            site.behave(mode)
            assert await code(slurm.hold("7")) == expected
        site.behave("prints")
        assert await slurm.job(7) is not None

    site.ask(run)


def test_away_at_first_is_tried_again(site: Site) -> None:
    async def run(slurm: SlurmBindings) -> None:
        site.behave("away")
        site.running("")
        assert await code(slurm.job(7)) == "slurm-away"
        site.behave("ok")
        site.running("25.11.4")
        assert await slurm.job(7) is not None

    site.ask(run)


def test_a_newer_one_that_gets_no_answer_leaves_it_to_the_commands(site: Site) -> None:
    """pyslurm of 25.11 and a slurmctld of 24.11: "Zero Bytes", as from one that is away."""
    site.behave("away")
    for version in ("24.11.5", "25.11.4"):
        site.running(version)
        site.ask(lambda slurm: slurm.hold("7"))
        assert site.commands.endswith("scontrol hold 7\n")


def test_the_site_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(name: str, **how: bool) -> type:
        return type(connect(DaemonConfig.model_validate({"slurm_client": name}), **how))

    assert chosen("commands") is SlurmCommands
    assert chosen("pyslurm") is SlurmBindings
    if importlib.util.find_spec("pyslurm") is None:
        assert chosen("auto") is SlurmCommands
    monkeypatch.syspath_prepend(STANDIN)
    assert chosen("auto") is SlurmBindings
    assert chosen("auto", briefly=True) is SlurmCommands


@pytest.mark.skipif(
    importlib.util.find_spec("pyslurm") is None,
    reason="pyslurm is not installed: it builds only beside its own Slurm release",
)
def test_the_real_pyslurm() -> None:
    """Both clients see the same cluster."""

    async def run() -> None:
        slow = SlurmCommands(30)
        fast = SlurmBindings(30, forced=True)
        try:
            uids = {view.uid for view in await slow._jobs()}
            seen = {view.handle: view for view in await fast.jobs_of(uids)}
            for view in await slow.jobs_of(uids):
                other = seen[view.handle]
                assert (other.state, other.tres_per_node) == (view.state, view.tres_per_node)
        finally:
            await fast._child.close()

    asyncio.run(run())
