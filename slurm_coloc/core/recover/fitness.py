# SPDX-License-Identifier: Apache-2.0
"""Judges whether the GPUs of a job are fit for it, as its node sees them before it starts.

Slurm counts promised memory. Only the node sees a process of no job, or a neighbour that took more
than its share; a job that starts beside it runs out of memory through no fault of its own.
"""

from collections.abc import Iterable
from dataclasses import dataclass

# The part of an unused card's memory that the driver, its daemons and an ending process may hold. A
# whole GPU with more than this taken is unfit.
IDLE_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A compute process on a GPU. ``job_id`` None: no job's; ``used_mib`` None: not known."""

    pid: int
    used_mib: int | None = None
    job_id: int | None = None
    uid: int | None = None
    name: str = ""

    @property
    def foreign(self) -> bool:
        """Whether it is neither a job's nor root's (the driver, DCGM)."""
        return self.job_id is None and self.uid != 0


@dataclass(frozen=True, slots=True)
class GpuNow:
    """A GPU at one moment. ``free_mib`` None: not known."""

    uuid: str
    total_mib: int | None
    free_mib: int | None
    holders: tuple[GpuProcess, ...] = ()


def unfit(gpu: GpuNow, need_mib: int | None, slack_mib: int = 0) -> str:
    """Why a job that was promised ``need_mib`` of ``gpu`` (None: all of it) cannot start there; ""
    where it can. ``slack_mib``: the MiB that may be missing from the promise."""
    foreign = [one for one in gpu.holders if one.foreign]
    if foreign:
        return f"{gpu.uuid}: {_named(foreign)} of no job runs there"
    if gpu.free_mib is None:
        return ""
    if need_mib is None:
        if gpu.total_mib is None or gpu.free_mib >= gpu.total_mib * (1 - IDLE_SHARE):
            return ""
        need_mib = gpu.total_mib
    elif gpu.free_mib + slack_mib >= need_mib:
        return ""
    beside = f"; {_named(gpu.holders)} runs there" if gpu.holders else ""
    return f"{gpu.uuid}: {_gib(gpu.free_mib)} free, {_gib(need_mib)} promised{beside}"


def _gib(mib: int) -> str:
    return f"{mib / 1024:.1f} GiB"


def _named(holders: Iterable[GpuProcess]) -> str:
    """The largest of these processes in words, and the number of the others."""
    ranked = sorted(holders, key=lambda one: -(one.used_mib or 0))
    first = ranked[0]
    text = f"process {first.pid}"
    if first.name:
        text += f" ({first.name})"
    if first.job_id is not None:
        text += f" of job {first.job_id}"
    elif first.uid is not None:
        text += f" of uid {first.uid}"
    if first.used_mib is not None:
        text += f" with {_gib(first.used_mib)}"
    return text + (f" and {len(ranked) - 1} more" if len(ranked) > 1 else "")
