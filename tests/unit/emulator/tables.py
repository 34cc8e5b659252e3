# SPDX-License-Identifier: Apache-2.0
"""A GPU and the jobs that use its MPS daemon, for the tests of them."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_coloc.adapters.mps import processes
from slurm_coloc.adapters.mps.jobs import Gpu, MpsJob
from slurm_coloc.adapters.mps.processes import Process
from slurm_coloc.core.gpu.sharing import Method, Rules

if TYPE_CHECKING:
    from .conftest import Node

ADA, BEN = 54321, 54322  # no account needs to exist
NOWHERE = Path("/nowhere")  # by session alone: in some containers root reads no environment
#: As /run is: on a disk, 50,000 files of one test can hold up the daemons of another for seconds.
MEMORY = Path("/dev/shm")
ONE, ALL = Rules(users="one"), Rules(users="all")


class Table:
    """A GPU and its jobs."""

    def __init__(self, node: "Node", folder: Path) -> None:
        self.node = node
        shutil.copytree(node.bin, folder / "bin")
        node.ledger.chmod(0o666)
        self.leaders: set[Process] = set()  # every daemon that was there
        self.run_dir = Path(tempfile.mkdtemp(prefix="mps-", dir=MEMORY))
        self.run_dir.chmod(0o755)
        self.gpu = Gpu(
            self.run_dir,
            str(node.show()["gpus"][1]["uuid"]),
            folder / "bin" / "nvidia-cuda-mps-control",
            {**node.env, "SPANK_COLOC_V": "1", "SLURM_JOB_ID": "1"},
        )

    def would(self, job: int, uid: int = ADA, rules: Rules = ONE) -> tuple[Method, str]:
        found = self.gpu.would_join(MpsJob(job, 0, uid, uid), rules)
        return found.method, found.reason

    def join(self, job: int, uid: int = ADA, rules: Rules = ONE) -> tuple[Method, str, Path | None]:
        (self.run_dir / f"{job}.json").write_text("{}")
        found, pipe = self.gpu.join(MpsJob(job, 0, uid, uid), rules)
        self.daemons()
        return found.method, found.reason, pipe

    def leave(self, job: int, uid: int = ADA) -> None:
        """The last one's daemon has gone then."""
        self.gpu.leave(MpsJob(job, 0, uid, uid))
        (self.run_dir / f"{job}.json").unlink(missing_ok=True)
        self.settle()

    def settle(self) -> None:
        """Wait for what a hook left to go on behind it, which holds the lock."""
        if self.gpu.folder.is_dir():
            with (self.gpu.folder / "lock").open("a") as file:
                fcntl.flock(file, fcntl.LOCK_EX)

    def daemons(self) -> list[int]:
        """Control daemons and servers of this GPU, by pid."""
        if (self.gpu.folder / "daemon.json").exists():
            self.leaders.add(self.record())
        return sorted(
            {one.pid for leader in self.leaders for one in processes.of_daemon(NOWHERE, leader)}
        )

    def record(self) -> Process:
        kept = json.loads((self.gpu.folder / "daemon.json").read_text())
        return Process(kept["pid"], kept["started"])


def laid(node: "Node") -> Iterator[Table]:
    """A table on this node; taken away in the end, with what is left on it."""
    folder = Path(tempfile.mkdtemp(prefix="mps-jobs-", dir="/tmp"))
    folder.chmod(0o755)
    # The ledger must be reachable for other users, and pytest closes its own folders to them, also
    # those of a run that is going on beside it.
    node.ledger = Path(shutil.move(node.ledger, folder / "ledger"))
    node.env["COLOC_EMU_LEDGER"] = str(node.ledger)
    made = Table(node, folder)
    yield made
    made.settle()
    for pid in made.daemons():
        os.kill(pid, signal.SIGKILL)
    for mount in made.run_dir.glob("mps/*/*"):
        if os.path.ismount(mount):  # false for one that was removed behind a hook meanwhile
            subprocess.run(["umount", "-l", mount], check=True)
    # Neither by a limit on nested folders, nor in the way of what is removed behind a hook.
    left = [folder, made.run_dir]
    subprocess.run(["rm", "-rf", *left], check=False, stderr=subprocess.DEVNULL)
