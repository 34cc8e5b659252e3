# SPDX-License-Identifier: Apache-2.0
"""What every process holds and what every job was promised, written down once a second.

The emulator's ledger is the truth about memory (``job`` is the process's own SLURM_JOB_ID, which
nothing of slurm-coloc reads there); slurmctld is the truth about what was promised.
"""

import json
import re
import threading
import time
from dataclasses import dataclass, field

from slurm_coloc.errors import ColocError
from slurm_coloc.lab.lab import Lab

#: shards of one GPU in a request of any spelling
SHARDS = re.compile(r"gres[:/]shard(?::[\w.-]+)?[:=](\d+)")


@dataclass(frozen=True)
class Process:
    """One process on one GPU. ``mps``: it is a client of an MPS server."""

    gpu: str
    pid: int
    uid: int
    job: int
    mib: int
    mps: bool


@dataclass(frozen=True)
class Promise:
    """What Slurm gave a running job: ``mib`` of a GPU (0: whole GPUs), since its ``restart``."""

    job: int
    restart: int
    mib: int


@dataclass(frozen=True)
class Second:
    """One look. A job that began or ended between the two questions may be in one part alone."""

    at_s: float
    processes: tuple[Process, ...]
    promised: dict[int, Promise]


@dataclass
class Witness:
    """Looks at ``lab`` until it is stopped."""

    lab: Lab
    each_s: float = 1.0
    seconds: list[Second] = field(default_factory=list)
    missed: int = 0
    #: each job as slurmctld showed it last: it forgets jobs that ended MinJobAge ago
    shown: dict[int, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="witness", daemon=True)

    def __enter__(self) -> "Witness":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            try:
                self.seconds.append(self.look())
            except (ColocError, OSError, ValueError):
                self.missed += 1
            due = max(due + self.each_s, time.monotonic())
            self._stop.wait(due - time.monotonic())

    def look(self) -> Second:
        """One second of all nodes."""
        before = self._promises()
        at_s = time.time()
        processes: list[Process] = []
        for node in self.lab.spec.node_names:
            processes += held(self.lab, node)
        # A job that was rewritten or began meanwhile: what held before the look counts.
        return Second(at_s, tuple(processes), self._promises() | before)

    def _promises(self) -> dict[int, Promise]:
        jobs = self.lab.jobs()
        self.shown |= {int(job["JobId"]): job for job in jobs}
        return promises(jobs, self.lab.spec.shard_mib)


def held(lab: Lab, node: str) -> list[Process]:
    """The processes on the GPUs of a node."""
    ledger = lab.dir / "nodes" / node / "ledger"
    shown = json.loads(lab.run(["coloc-emu", "show", str(ledger), "--json"]).stdout)
    return [
        Process(
            f"{node}/{gpu['index']}", one["pid"], one["uid"], one["job"], one["memory_mib"],
            bool(one["mps"]),
        )
        for gpu in shown["gpus"]
        for one in gpu["processes"]
        if one["memory_mib"]
    ]  # fmt: skip


def promises(jobs: list[dict[str, str]], shard_mib: int) -> dict[int, Promise]:
    """What the jobs that run now were promised."""
    found: dict[int, Promise] = {}
    for job in jobs:
        if job["JobState"] in ("RUNNING", "COMPLETING", "SUSPENDED"):
            number = int(job["JobId"])
            asked = " ".join(job.get(name, "") for name in ("TresPerNode", "TresPerTask"))
            shards = SHARDS.search(asked)
            found[number] = Promise(
                number, int(job["Restarts"]), int(shards[1]) * shard_mib if shards else 0
            )
    return found
