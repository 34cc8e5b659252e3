# SPDX-License-Identifier: Apache-2.0
"""Which Slurm job a process belongs to, by what its user cannot forge.

In this order: its cgroup, which only root assigns (``.../job_12/step_batch/...``; an adopted ssh
shell stands in ``step_extern``); the chain of its parents up to a slurmstepd of root's, whose title
names the job (26.05 writes a SLUID instead of the number into cgroup paths, and a node may have no
cgroups at all); SLURM_JOB_ID of its environment, which its user may set as he likes, and which
therefore counts only where that job is his own.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
#: programs that hold GPU memory for others: MPS' server and control daemon
HELPERS = ("nvidia-cuda-mps-server", "nvidia-cuda-mps-control")
DEEPEST = 64  # parents that are looked at

_CGROUP = re.compile(rb"/job_([0-9]{1,10})(?:/|$)", re.MULTILINE)
_TITLE = re.compile(rb"slurmstepd: \[([0-9]{1,10})\.[A-Za-z0-9_+]+\]")
_ENVIRON = b"SLURM_JOB_ID="
_COMM_MAX = 15  # the kernel cuts a program's name in /proc/PID/comm


@dataclass(frozen=True, slots=True)
class Found:
    """A process. ``started``: clock ticks since boot, field 22 of /proc/PID/stat; ``name`` as the
    kernel shows it, which its user may change."""

    pid: int
    started: int
    uid: int
    name: str
    job_id: int | None = None


def find(pid: int, uid_of_job: Callable[[int], int | None]) -> Found | None:
    """The process, None where it is gone. ``uid_of_job``: whose a job of this node is."""
    at = PROC / str(pid)
    try:
        uid = at.stat().st_uid
        fields = _stat(at)
        name = (at / "comm").read_bytes().strip().decode("utf-8", "replace")
    except (OSError, ValueError, IndexError):
        return None
    job_id = _by_cgroup(at) or _by_parents(int(fields[1])) or _by_environ(at, uid, uid_of_job)
    return Found(pid, int(fields[19]), uid, name, job_id)


def is_helper(found: Found) -> bool:
    """Whether it is a program of MPS. Told by its file where that can be read: a name is its
    user's."""
    try:
        return (PROC / str(found.pid) / "exe").readlink().name in HELPERS
    except OSError:
        return found.name in [name[:_COMM_MAX] for name in HELPERS]


def _stat(at: Path) -> list[bytes]:
    """Fields of /proc/PID/stat from the third on: state, parent, ..."""
    return (at / "stat").read_bytes().rpartition(b")")[2].split()


def _by_cgroup(at: Path) -> int | None:
    try:
        found = _CGROUP.search((at / "cgroup").read_bytes())
    except OSError:
        return None
    return int(found[1]) if found else None


def _by_parents(parent: int) -> int | None:
    for _ in range(DEEPEST):
        if parent <= 1:
            return None
        at = PROC / str(parent)
        try:
            if at.stat().st_uid == 0 and (at / "comm").read_bytes().strip() == b"slurmstepd":
                found = _TITLE.match((at / "cmdline").read_bytes())
                return int(found[1]) if found else None
            parent = int(_stat(at)[1])
        except (OSError, ValueError, IndexError):
            return None
    return None


def _by_environ(at: Path, uid: int, uid_of_job: Callable[[int], int | None]) -> int | None:
    try:
        words = (at / "environ").read_bytes().split(b"\0")
    except OSError:
        return None
    for word in words:
        if word.startswith(_ENVIRON) and word[len(_ENVIRON) :].isdigit():
            job_id = int(word[len(_ENVIRON) :][:10])
            return job_id if uid_of_job(job_id) == uid else None
    return None
