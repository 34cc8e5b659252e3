# SPDX-License-Identifier: Apache-2.0
"""The way to the active colocd, and the agent that brings what was spooled: real sockets, real
munged, a colocd's handler that says what it is told."""

import asyncio
import json
import os
import pwd
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc import agent
from slurm_coloc.adapters.hookenv import HookSettings
from slurm_coloc.adapters.link.munge import Munge
from slurm_coloc.adapters.link.server import LinkServer
from slurm_coloc.agent import Agent
from slurm_coloc.core.peer import Peer
from slurm_coloc.flow.node import deliver as delivering
from tests.harness.ports import free_port
from tests.unit.link.conftest import munge_socket  # noqa: F401

ME = pwd.getpwuid(os.geteuid()).pw_name
REFUSED = {"code": "not-yours", "message": "was not there"}


class Colocd:
    """A link server in a thread; ``code``: what it refuses every report with."""

    def __init__(self, port: int, munge: Path, *, code: str = "") -> None:
        self.code = code
        self.taken: list[dict[str, Any]] = []
        self.beats = 0
        self._loop = asyncio.new_event_loop()
        self._server = LinkServer(
            f"127.0.0.1:{port}", Munge(munge), self._answer, {os.geteuid()}, lambda: False
        )
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._server.start(), self._loop).result(10)

    async def _answer(self, peer: Peer, line: bytes) -> bytes:
        said = json.loads(line)
        assert peer.node == "n1"
        if self.code and (said["op"] != "beat" or self.code == "standby"):
            error = {"code": self.code, "message": "no"}
            return json.dumps({"v": 1, "ok": False, "error": error}).encode() + b"\n"
        if said["op"] == "beat":
            self.beats += 1
        else:
            self.taken.append(said)
        return b'{"v": 1, "ok": true}\n'

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._server.stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)


Start = Callable[..., Colocd]


@pytest.fixture
def colocd(munge_socket: Path) -> Iterator[Start]:  # noqa: F811
    """Starts colocds; all stop after the test."""
    started: list[Colocd] = []

    def start(port: int, **options: Any) -> Colocd:
        started.append(Colocd(port, munge_socket, **options))
        return started[-1]

    yield start
    for one in started:
        one.stop()


def settings_of(folder: Path, munge: Path, *ports: int) -> HookSettings:
    return HookSettings(
        socket=folder / "none.sock",
        slurm_user=ME,
        spool_dir=folder / "spool",
        run_dir=folder / "jobs",
        controllers=tuple(f"127.0.0.1:{port}" for port in ports),
        munge_socket=munge,
    )


def report(job_id: int) -> dict[str, Any]:
    return {"v": 1, "op": "report", "job_id": job_id, "restart": 0, "node": "n1"}


def names(folder: Path) -> list[str]:
    spool = folder / "spool"
    return sorted(file.name for file in spool.iterdir()) if spool.exists() else []


def deliver(settings: HookSettings, job_id: int) -> str:
    return delivering.deliver(report(job_id), settings, os.geteuid(), 5)


def test_a_standby_and_a_dead_one_are_passed_over(
    colocd: Start,
    munge_socket: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    ports = [free_port() for _ in range(3)]
    settings = settings_of(tmp_path, munge_socket, *ports)
    colocd(ports[1], code="standby")
    active = colocd(ports[2])
    assert deliver(settings, 1) == "colocd"
    assert [one["job_id"] for one in active.taken] == [1]
    active.code = "standby"
    told = deliver(settings, 2)
    assert told.startswith("spool: ") and told.count("standby") == 2 and "refused" in told
    assert names(tmp_path) == ["2.0.n1.json"]
    active.code = ""
    assert deliver(settings, 3) == "colocd"
    assert [one["job_id"] for one in active.taken] == [1, 3, 2]
    assert names(tmp_path) == []


def test_a_report_that_is_never_taken_is_set_aside(
    colocd: Start,
    munge_socket: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    port = free_port()
    settings = settings_of(tmp_path, munge_socket, port)
    deliver(settings, 1)
    assert names(tmp_path) == ["1.0.n1.json"]
    colocd(port, code="not-yours")
    run_agent(settings, lambda: names(tmp_path) == ["1.0.n1.bad"])


def run_agent(settings: HookSettings, done: Callable[[], bool], limit_s: float = 20) -> None:
    """Run an agent until ``done``; AssertionError when it is not within ``limit_s``."""

    async def run() -> None:
        task = asyncio.create_task(Agent(settings, "n1").run())
        end = time.monotonic() + limit_s
        while not done():
            assert time.monotonic() < end, "not in time"
            await asyncio.sleep(0.05)
        task.cancel()

    asyncio.run(run())


def test_the_agent_brings_the_spool_once_colocd_is_there(
    colocd: Start,
    munge_socket: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    port = free_port()
    settings = settings_of(tmp_path, munge_socket, port)
    for job_id in range(1, 41):
        deliver(settings, job_id)
    assert len(names(tmp_path)) == 40
    found: list[Colocd] = []
    later = threading.Timer(1.0, lambda: found.append(colocd(port)))
    later.start()
    # colocd has a report before the agent has its answer and removes the file.
    run_agent(settings, lambda: names(tmp_path) == [])
    assert len(found[0].taken) == 40
    assert found[0].beats >= 1


def test_a_node_setup_that_hangs_keeps_no_heartbeat_back(
    colocd: Start,
    munge_socket: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A slurmd -G that never ends, as on a file system that is away."""
    release = threading.Event()
    monkeypatch.setattr(agent, "SETUP_S", 0.2)
    monkeypatch.setattr(agent.NodeSetup, "latest", lambda self: release.wait(60))
    port = free_port()
    found = colocd(port)
    try:
        run_agent(settings_of(tmp_path, munge_socket, port), lambda: found.beats >= 1)
    finally:
        release.set()


def test_what_colocd_cannot_judge_yet_stays(
    colocd: Start,
    munge_socket: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    port = free_port()
    settings = settings_of(tmp_path, munge_socket, port)
    deliver(settings, 1)
    server = colocd(port, code="slurm")
    run_agent(settings, lambda: server.beats > 0)
    assert names(tmp_path) == ["1.0.n1.json"]


def test_a_colocd_that_began_anew_is_linked_before_the_next_heartbeat_is_due(
    colocd: Start,
    munge_socket: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    """Until then hooks had no answer: a job on a shared device was told the whole of it."""
    port = free_port()
    settings = settings_of(tmp_path, munge_socket, port)._replace(beat_s=600)
    first = Colocd(port, munge_socket)
    later: list[Colocd] = []

    def linked_again() -> bool:
        if first.beats and not later:
            first.stop()
            later.append(colocd(port))
        return bool(later and later[0].beats)

    run_agent(settings, linked_again)
