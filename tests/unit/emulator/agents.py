# SPDX-License-Identifier: Apache-2.0
"""An agent of one emulated node, for the tests of it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

LIMIT_S = 60.0

if TYPE_CHECKING:
    from .conftest import Node


class Agent:
    """An agent of one emulated node, its jobs' states and records."""

    def __init__(self, node: "Node", settings: str = "", dcgmi: bool = True) -> None:
        self.node = node
        self.run_dir = node.folder / "run"
        self.run_dir.mkdir(mode=0o755)
        self.config = node.folder / "coloc.toml"
        program = node.bin / "dcgmi" if dcgmi else "/nonexistent"
        self.config.write_text(
            f'version = 1\n[daemon]\nslurm_user = "root"\nsocket = "{node.folder}/none.sock"\n'
            f'[hooks]\nrun_dir = "{self.run_dir}"\nspool_dir = "{node.folder}/spool"\n'
            f'[agent]\ndcgmi = "{program}"\n{settings}\n'
        )
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        env = {**os.environ, **self.node.env, "LD_LIBRARY_PATH": str(self.node.lib)}
        env["COLOC_CONFIG"] = str(self.config)
        with (self.node.folder / "agent.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "slurm_coloc", "agent", "--node", "n1"],
                env=env,
                stdout=log,
                stderr=log,
            )

    def end(self, number: int = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(LIMIT_S)
            self.process = None

    def job(
        self,
        job_id: int,
        gpu: int = 0,
        uid: int = 0,
        restart: int = 0,
        mig: int | None = None,
        method: str = "mps",
    ) -> str:
        """The state that the Prolog writes; the GPU's UUID, or that of its MIG device ``mig``."""
        found = self.node.show()["gpus"][gpu]
        uuid = str((found if mig is None else found["mig"][mig])["uuid"])
        state = {"job_id": job_id, "restart": restart, "uid": uid, "started_s": time.time()}
        state["sharing"] = {"method": method}
        new = self.run_dir / "new"
        new.write_text(json.dumps({**state, "gpu": {"devices": [{"uuid": uuid}]}}))
        new.rename(self.run_dir / f"{job_id}.json")
        return uuid

    def events(self, job_id: int) -> list[tuple[str, str]]:
        """Kind and first words of what was noted."""
        told = self.record(job_id).get("events", [])
        return [(one["kind"], " ".join(one["text"].split()[:2])) for one in told]

    def record(self, job_id: int) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.run_dir / f"use/{job_id}.0.json").read_text())
        except OSError:
            return {}
        return found

    def until(self, condition: Callable[[], Any], what: str) -> None:
        end = time.monotonic() + LIMIT_S
        while not condition():
            log = (self.node.folder / "agent.log").read_text()
            assert time.monotonic() < end, f"{what}\n{log}"
            time.sleep(0.05)

    def sees(self, job_id: int, mib: int) -> None:
        self.until(
            lambda: (self.record(job_id).get("last") or {}).get("held_mib") == mib,
            f"job {job_id} holds {mib} MiB: {self.record(job_id)}",
        )


def train(agent: Agent, job: int, mib: int, smact: float, **env: str) -> subprocess.Popen[str]:
    """A training that says by its environment that it is the job's."""
    options = ("--memory-mib", mib, "--smact", smact, "--work-s", 60)
    return agent.node.train(*options, **{"SLURM_JOB_ID": str(job), **env})
