# SPDX-License-Identifier: Apache-2.0
"""How colocd starts: warmed up before it listens, and not held up by a slurmctld that is away."""

import asyncio
import base64
import os
import pwd
import signal
import socket
import sys
import time
import zlib
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from slurm_coloc.adapters.slurm import SlurmClient
from slurm_coloc.adapters.slurm.commands.parse import parse_ping
from slurm_coloc.config import Config, load_config
from slurm_coloc.core.slurm.cluster import ClusterShape
from slurm_coloc.core.slurm.controller import Controller
from slurm_coloc.daemon import Daemon, front_process
from slurm_coloc.errors import SlurmError
from slurm_coloc.estimate.api import AUTO, registry
from slurm_coloc.estimate.request import WARM_UP, Given
from slurm_coloc.estimate.variants import prepared
from slurm_coloc.flow.cluster import role
from slurm_coloc.flow.cluster.role import Role
from slurm_coloc.flow.cluster.shape import ShapeCache
from slurm_coloc.flow.estimators.calibrations import defaults_of, load_stacks
from tests.unit.flow.test_role import BOTH, ONE

SHAPE = ClusterShape("c", (24, 11, 5))


class Slurm:
    """A slurmctld whose answers to the question for its shape come from ``answer``; it has nothing
    to say to any other."""

    def __init__(self, answer: Callable[[int], Awaitable[ClusterShape]]) -> None:
        self.answer, self.asked = answer, 0

    async def shape(self) -> ClusterShape:
        self.asked += 1
        return await self.answer(self.asked)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def away(*args: object) -> Any:
            raise SlurmError("away", "slurm-away")

        return away


@pytest.fixture
def config(tmp_path: Path) -> Config:
    path = tmp_path / "coloc.toml"
    path.write_text(
        f'version = 1\n[daemon]\nsocket = "{tmp_path}/sock"\nstate_dir = "{tmp_path}"\n'
        f'off_file = "{tmp_path}/off"\nslurm_user = "{pwd.getpwuid(os.geteuid()).pw_name}"\n'
        f'[hooks]\nspool_dir = "{tmp_path}/spool"\n'
    )
    return load_config(path)


def start(
    config: Config, answer: Callable[[int], Awaitable[ClusterShape]], until: Callable[[], bool]
) -> tuple[float, Slurm, Daemon]:
    """Run colocd until it listens (seconds are counted to there) and ``until`` holds."""

    async def run() -> tuple[float, Slurm, Daemon]:
        daemon, slurm = Daemon(config, None), Slurm(answer)
        daemon.parts.slurm = cast(SlurmClient, slurm)
        daemon.parts.cluster = ShapeCache(daemon.parts.slurm)
        began, listening = time.monotonic(), 0.0
        task = asyncio.create_task(daemon.run())
        while time.monotonic() < began + 30:
            if not listening and config.daemon.socket.exists():
                listening = time.monotonic() - began
            if task.done() or (listening and until()):
                break
            await asyncio.sleep(0.02)
        daemon.stop.set()
        await task
        assert listening
        return listening, slurm, daemon

    return asyncio.run(run())


async def known(number: int) -> ClusterShape:
    return SHAPE


def test_a_slurmctld_that_hangs_is_waited_for_only_briefly(config: Config) -> None:
    async def hangs(number: int) -> ClusterShape:
        await asyncio.sleep(config.daemon.command_timeout_s)
        raise SlurmError("no answer", "slurm-away")

    seconds, _, _ = start(config, hangs, lambda: True)
    assert seconds < 6


def test_a_slurmctld_that_comes_soon_after_is_soon_known(config: Config) -> None:
    answered = []

    async def second_time(number: int) -> ClusterShape:
        if number == 1:
            raise SlurmError("away", "slurm-away")
        answered.append(number)
        return SHAPE

    _, slurm, daemon = start(config, second_time, lambda: bool(answered))
    assert answered and daemon.parts.cluster.shape is SHAPE, "refresh_s is 120 s"
    assert 2 <= slurm.asked <= 3, "the loop; and who finds that it is the active one, before that"
    assert daemon.loops.refresh_pause() == config.daemon.refresh_s


@pytest.fixture
def cold() -> Iterator[None]:
    registry.cache_clear()
    yield
    registry.cache_clear()


def test_the_process_of_the_hook_loads_no_estimator(config: Config, cold: None) -> None:
    loaded = []

    def listening() -> bool:
        loaded.append(registry.cache_info().currsize)
        return True

    start(config, known, listening)
    assert loaded == [0]


def test_the_built_in_summary_has_an_estimate(config: Config) -> None:
    # Others are for recordings, for language models or for networks that may not be there.
    packed = base64.b64encode(zlib.compress(WARM_UP.encode())).decode()
    for name in (AUTO, "text", "horus"):
        wanted = config.estimate.model_copy(update={"estimator": name})
        defaults = defaults_of(wanted, load_stacks(wanted))
        found = prepared(packed, Given(batch_size=2), defaults).of("", "", 1)
        assert found.estimate is not None, (name, found.detail)


def test_a_front_that_hangs_is_replaced(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_process, "PING_S", 0.1)
    monkeypatch.setattr(front_process, "ANSWER_S", 2.0)
    seen: list[int] = []
    up: list[float] = []

    def another() -> bool:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(0.1)  # this is colocd's loop: it must not wait for one that is stopped
            try:
                sock.connect(str(config.daemon.socket))
            except OSError:
                return False  # between two
            cred = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid = int.from_bytes(cred[:4], sys.byteorder)
        up.append(time.monotonic())
        # Once it serves: one that hangs in its start is another case, with a limit of its own.
        if not seen and up[-1] - up[0] > 0.5:
            os.kill(pid, signal.SIGSTOP)
            seen.append(pid)
        return bool(seen) and pid != seen[0]

    start(config, known, another)
    assert not config.daemon.socket.exists()


@pytest.mark.parametrize(
    ("ping", "host", "acts"), [(ONE, "x", True), (BOTH, "ctl1", True), (BOTH, "ctl2", False)]
)
def test_nobody_acts_before_slurm_has_told_who_does(
    config: Config, monkeypatch: pytest.MonkeyPatch, ping: str, host: str, acts: bool
) -> None:
    """A standby would act once at each start. A single one acts as soon as it is told, also where
    the first question had no answer."""
    monkeypatch.setattr(role, "LOOK_S", 0.1)
    asked: list[float] = []
    acted: list[float] = []

    async def controllers() -> list[Controller]:
        asked.append(time.monotonic())
        await asyncio.sleep(0.05)
        if len(asked) == 1:
            raise SlurmError("no answer", "slurm-timeout")
        return parse_ping(ping)

    async def act() -> None:
        acted.append(time.monotonic())

    async def run() -> None:
        daemon, slurm = Daemon(config, None), Slurm(known)
        parts = daemon.parts
        slurm.controllers = controllers  # type: ignore[attr-defined]
        parts.role = Role(cast(SlurmClient, slurm), host)
        for part in (parts.placement, parts.slots, parts.stretcher, parts.idle, parts.summaries):
            monkeypatch.setattr(part, "round", act)
        monkeypatch.setattr(parts.watcher, "reconcile", act)
        tasks = daemon.loops.others()
        until_s = time.monotonic() + (10.0 if acts else 0.6)
        while len(acted) < 6 and time.monotonic() < until_s:
            await asyncio.sleep(0.02)
        for task in tasks:
            task.cancel()
        await daemon.parts.placement.close()
        parts.store.close()

    asyncio.run(run())
    assert len(asked) > 1
    assert len(acted) == (6 if acts else 0)
    assert all(at > asked[1] for at in acted)
