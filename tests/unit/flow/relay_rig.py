# SPDX-License-Identifier: Apache-2.0
"""A node with a real agent process, and a colocd that may be slow."""

import asyncio
import json
import os
import pwd
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from slurm_coloc.adapters.link import agent_socket
from slurm_coloc.adapters.link.agent_socket import AgentWire
from slurm_coloc.adapters.link.client import Answer
from slurm_coloc.errors import DaemonUnreachable
from slurm_coloc.flow.client.connect import reach
from slurm_coloc.flow.node.deliver import deliver, ways_of
from tests.harness.ports import free_port
from tests.unit.flow.test_connect import Colocd, report, settings_of
from tests.unit.link.conftest import munge_socket  # noqa: F401

ME = os.geteuid()
LIMIT_S = 20.0
HOOK_S = 5.0  # time of a hook here: what is late is late by design, not by load


def until(what: Callable[[], Any], words: str) -> Any:
    end = time.monotonic() + LIMIT_S
    while not (found := what()):
        assert time.monotonic() < end, f"not in time: {words}"
        time.sleep(0.02)
    return found


class Slow(Colocd):
    """A colocd that answers no report until it may; ``addresses``: who connected."""

    def __init__(self, port: int, munge: Path) -> None:
        self.may = threading.Event()
        self.may.set()
        super().__init__(port, munge)

    async def _answer(self, peer: Any, line: bytes) -> bytes:
        if json.loads(line)["op"] == "report":
            await asyncio.to_thread(self.may.wait, LIMIT_S)
        return await super()._answer(peer, line)


class Rig:
    """A node with its agent, and a colocd."""

    def __init__(self, folder: Path, munge: Path) -> None:
        self.folder = folder
        self.munge = munge
        self.port = free_port()
        self.settings = settings_of(folder, munge, self.port)
        self.colocd: Slow | None = None
        self.agent: subprocess.Popen[bytes] | None = None

    def start_colocd(self) -> Slow:
        self.colocd = Slow(self.port, self.munge)
        return self.colocd

    def start_agent(self) -> None:
        config = self.folder / "coloc.toml"
        who = pwd.getpwuid(ME).pw_name
        config.write_text(
            f'version = 1\n[daemon]\nsocket = "{self.settings.socket}"\nslurm_user = "{who}"\n'
            f"[network]\ncontrollers = {json.dumps(self.settings.controllers)}\n"
            f'munge_socket = "{self.munge}"\n[hooks]\nspool_dir = "{self.settings.spool_dir}"\n'
            f'run_dir = "{self.settings.run_dir}"\nnvml = false\n'
            "[agent]\nbeat_s = 1\nsample = false\n"
        )
        argv = [sys.executable, "-m", "slurm_coloc", "agent", "--node", "n1"]
        env = {**os.environ, "COLOC_CONFIG": str(config)}
        with (self.folder / "agent.log").open("ab") as log:
            self.agent = subprocess.Popen(argv, env=env, stdout=log, stderr=log)
        until(self.socket.exists, "the agent has made its socket")

    @property
    def socket(self) -> Path:
        return self.settings.run_dir / agent_socket.FOLDER / agent_socket.NAME

    def via_agent(self) -> bool:
        """Whether the agent passes a request on by now."""
        try:
            with AgentWire(self.settings.run_dir, HOOK_S) as wire:
                return wire.exchange(launch()).get("ok") is True
        except (DaemonUnreachable, FileNotFoundError):
            return False

    def linked(self) -> None:
        until(self.via_agent, "the agent passes requests on")
        assert self.colocd is not None
        self.colocd.taken.clear()

    def deliver(self, job_id: int, node: str = "n1") -> str:
        return deliver({**report(job_id), "node": node}, self.settings, ME, HOOK_S)

    def ask(self) -> tuple[str, Answer]:
        """Who answered a launch, and what."""
        wire, answer = reach(ways_of(self.settings, "", "n1", ME), launch(), HOOK_S)
        wire.close()
        return wire.where, answer

    def jobs(self) -> list[int]:
        assert self.colocd is not None
        return [one["job_id"] for one in self.colocd.taken]

    def stop(self) -> None:
        if self.agent and self.agent.poll() is None:
            self.agent.kill()
            self.agent.wait()
        if self.colocd:
            self.colocd.may.set()
            self.colocd.stop()


def launch() -> bytes:
    return b'{"v":1,"op":"launch","job_id":7,"restart":0,"node":"n1"}'
