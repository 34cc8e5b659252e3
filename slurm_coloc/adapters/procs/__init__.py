# SPDX-License-Identifier: Apache-2.0
"""Which Slurm job a process belongs to, by what its user cannot forge.

In this order: its cgroup, which only root assigns (an adopted ssh shell stands in ``step_extern``);
the chain of its parents up to a slurmstepd of root's, whose title names the job (a node may have no
cgroups at all); SLURM_JOB_ID of its environment, which its user may set as he likes, and which
therefore counts only where that job is his own. core/gpu/telemetry/whose knows the formats.

A process' user is the real uid that the kernel tells in its status: the owner of a folder in /proc
is root where a process has made itself untraceable, which everybody may do.
"""

import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from slurm_coloc.core.gpu.telemetry import whose

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
DEEPEST = 64  # parents that are looked at
STEPD_UIDS = frozenset({0})
MAX_READ = 262144  # bytes of an environment


class Found(NamedTuple):
    """A process. ``started``: clock ticks since boot, field 22 of /proc/PID/stat; ``name`` as the
    kernel shows it, which its user may change."""

    pid: int
    started: int
    uid: int
    name: str
    job_id: int | None = None


class Stat(NamedTuple):
    """Of /proc/PID/stat."""

    name: str
    parent: int
    started: int


def find(
    pid: int,
    uid_of_job: Callable[[int], int | None],
    stepd_uids: Iterable[int] = STEPD_UIDS,
) -> Found | None:
    """The process, None where it is gone. ``uid_of_job``: whose a job of this node is;
    ``stepd_uids``: who slurmstepd runs as."""
    stat = stat_of(pid)
    if stat is None:
        return None
    uid, allowed = uid_of(pid), frozenset(stepd_uids)
    job_id = _by_cgroup(pid, allowed)
    if job_id is None:
        job_id = _by_parents(stat.parent, allowed)
    if job_id is None:
        claimed = whose.of_environ(read(pid, "environ"))
        job_id = claimed if claimed is not None and uid_of_job(claimed) == uid else None
    again = stat_of(pid)
    if again is None or again.started != stat.started:
        return None  # the number changed hands while we read
    return Found(pid, stat.started, uid, stat.name, job_id)


def of_job(job_id: int, uid: int, most: int = 512) -> list[int]:
    """The pids of a job's processes, among the first ``most`` of its user's on this node."""
    found, looked = [], 0
    for name in os.listdir(PROC):  # noqa: PTH208
        if not name.isdigit() or uid_of(int(name)) != uid:
            continue
        looked += 1
        if looked > most:
            break
        one = find(int(name), {job_id: uid}.get)
        if one is not None and one.job_id == job_id:
            found.append(one.pid)
    return found


def is_helper(found: Found) -> bool:
    """Whether it is a program of MPS. Told by its file where that can be read: a name is its
    user's."""
    try:
        return (PROC / str(found.pid) / "exe").readlink().name in whose.MPS
    except OSError:
        return whose.is_named(found.name, whose.MPS)


def is_system(found: Found) -> bool:
    """Whether it is a program of the system's that uses GPUs for nobody: a display server, the
    driver's, DCGM's or MPS' own. A name is its user's: it counts for root's process or program."""
    if not whose.is_named(found.name):
        return False
    if found.uid == 0:
        return True
    try:
        return (PROC / str(found.pid) / "exe").stat().st_uid == 0
    except OSError:
        return False


def stat_of(pid: int) -> Stat | None:
    """None where it has gone or is a zombie."""
    line = read(pid, "stat", 1024)
    head, bracket, rest = line.rpartition(b")")
    words = rest.split()
    if not bracket or len(words) < 20 or words[0] in (b"Z", b"X"):
        return None
    name = head.partition(b"(")[2].decode("utf-8", "replace")
    return Stat(name, int(words[1]), int(words[19]))


def uid_of(pid: int) -> int:
    """The real uid; -1 where it is gone."""
    for line in read(pid, "status").splitlines():
        if line.startswith(b"Uid:"):
            return int(line.split()[1])
    return -1


def read(pid: int, what: str, most: int = MAX_READ) -> bytes:
    """A file of /proc/PID; nothing where it cannot be read."""
    try:
        fd = os.open(f"{PROC}/{pid}/{what}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        pieces = []
        while most > 0 and (piece := os.read(fd, min(most, 65536))):
            pieces.append(piece)
            most -= len(piece)
        return b"".join(pieces)
    except OSError:
        return b""
    finally:
        os.close(fd)


def _by_cgroup(pid: int, stepd_uids: frozenset[int]) -> int | None:
    group = whose.of_cgroup(read(pid, "cgroup").decode("utf-8", "replace"))
    if group is None or group.job_id is not None:
        return None if group is None else group.job_id
    # A SLUID: slurmstepds sit in their steps' own groups below the job's.
    folder = Path(f"{CGROUPS}{group.top.replace('/..', '')}")
    for file in sorted(folder.glob("step_*/slurm/cgroup.procs"))[:DEEPEST]:
        with contextlib.suppress(OSError, ValueError):
            for word in file.read_text("ascii").split():
                job_id = whose.of_title(read(int(word), "cmdline"))
                if job_id is not None and uid_of(int(word)) in stepd_uids:
                    return job_id
    return None


def _by_parents(parent: int, stepd_uids: frozenset[int]) -> int | None:
    """The job of the nearest slurmstepd above a process."""
    for _ in range(DEEPEST):
        if parent <= 1:
            return None
        above = stat_of(parent)
        if above is None:
            return None
        # A step's child has slurmstepd's name and title until its exec, but the user's uid.
        if above.name == whose.STEPD and uid_of(parent) in stepd_uids:
            return whose.of_title(read(parent, "cmdline"))
        parent = above.parent
    return None
