# SPDX-License-Identifier: Apache-2.0
"""Why a run ended, what caused an out-of-memory on a shared GPU, and which limit it met.

Why a run ended follows from Slurm's state and the Epilog's report on the log. A CUDA out-of-memory
ends as FAILED, never as OUT_OF_MEMORY: that state means the host's memory (tried on 22.05 to
26.05). A log may also show an out-of-memory that the program caught: with exit code 0 it is only
noted.

The cause is the job itself, a neighbour, or a process of no job: by the agent's last sample
(flow/nodes/usage: ``last``), what each job was promised, and the log.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from slurm_coloc.core.codes import Code
from slurm_coloc.core.gpu.fence import FenceLevel
from slurm_coloc.core.slurm.job import JobView

# MiB that a sample of a second ago may miss, with contexts and rounding.
NEAR_MIB = 512
# A job was at its fence if a sample at most AT_FENCE_S before its end was this near to it.
AT_FENCE, AT_FENCE_MIB, AT_FENCE_S = 0.01, 96, 5.0
#: What enforces a limit, in words for messages.
HOLDER = {
    FenceLevel.CGROUP: "which the kernel holds for all of its processes",
    FenceLevel.MPS: "which MPS holds",
    FenceLevel.FRAMEWORK: "which its framework holds",
}
#: PyTorch names the limit of its own allocator in its text (2.10: "5.00 GiB allowed; ").
_ALLOWED = re.compile(r"\b[0-9.]+ [KMG]iB allowed\b")


class Outcome(StrEnum):
    """How a run of a job ended."""

    COMPLETED = "completed"
    OOM_GPU = "oom-gpu"
    OVERRUN = "overrun"  # the agent ended processes that held more than they were promised
    OOM_HOST = "oom-host"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    PREEMPTED = "preempted"
    NODE_FAIL = "node-fail"
    REQUEUED = "requeued"  # somebody else put it back into the queue
    PUT_BACK = "put-back"  # we did, before it began: its GPU was not fit for it
    SLOT = "slot"  # it left at its time slot's end, to go on in the next one
    GONE = "gone"


# SIGKILL comes from outside, most often for host memory (without cgroups Slurm reports that as
# FAILED, tried on 22.05 and 24.11); a framework that runs out of GPU memory exits by itself.
KILLED = 9

_BY_STATE = {
    "COMPLETED": Outcome.COMPLETED,
    "OUT_OF_MEMORY": Outcome.OOM_HOST,
    "CANCELLED": Outcome.CANCELLED,
    "REVOKED": Outcome.CANCELLED,
    "TIMEOUT": Outcome.TIMEOUT,
    "DEADLINE": Outcome.TIMEOUT,
    "PREEMPTED": Outcome.PREEMPTED,
    "NODE_FAIL": Outcome.NODE_FAIL,
    "BOOT_FAIL": Outcome.NODE_FAIL,
}


#: a run that ends so soon after the agent ended its processes ended by that
ENDED_S = 30.0


def ended_for_overrun(events: Iterable[Mapping[str, Any]], ended_s: float) -> str:
    """What the agent wrote when it ended processes of a run that held too much, shortly before the
    run ended; "" where it did not."""
    found = [
        str(one["text"])
        for one in events
        if one["kind"] == "overrun"
        and one.get("state") == "ended"
        and -1.0 <= ended_s - float(one["at_s"]) <= ENDED_S
    ]
    return found[-1] if found else ""


def outcome_of(view: JobView, *, oom: bool, overrun: bool = False) -> Outcome:
    """The outcome of an ended run. ``oom``: its log shows a GPU out-of-memory; only a FAILED job
    with that ran out of GPU memory. ``overrun``: see ended_for_overrun."""
    if view.state in _BY_STATE:
        return _BY_STATE[view.state]
    if overrun:
        return Outcome.OVERRUN
    if view.signal == KILLED or view.exit_code == 128 + KILLED:
        return Outcome.FAILED
    return Outcome.OOM_GPU if oom else Outcome.FAILED


class Blame(Code):
    """What caused a run's out-of-memory."""

    SELF = "self", "caused by the job itself"
    NEIGHBOUR = "neighbour", "caused by a neighbour"
    FOREIGN = "foreign", "caused by a process of no job"
    # of the job's own allocator, within what it was promised
    FRAGMENTATION = "fragmentation", "caused by fragmented memory"
    MPS_FAULT = "mps-fault", "caused by a fault of MPS"
    HARDWARE = "hardware", "caused by a fault of its GPU"  # or its driver's
    UNKNOWN = "unknown", "cause unknown"


WHOSE = {blame: blame.text for blame in Blame}


@dataclass(frozen=True, slots=True)
class OomSnapshot:
    """What is known of the moment of the out-of-memory. Memory in MiB of one GPU.

    ``share_mib``: promised to the job, 0 for the whole GPU. ``fenced``: a fence held it to that.
    ``last``: the last sample of its agent; None without one. ``promised``: to its neighbours, by
    job id. ``requested_mib``, ``free_mib``, ``in_use_mib`` (which the program itself reports: the
    sample may be older): from the text of the log. ``broken``: the driver's report on the GPU.
    """

    share_mib: int
    fenced: bool
    last: Mapping[str, Any] | None = None
    promised: Mapping[int, int] | None = None
    requested_mib: int | None = None
    free_mib: int | None = None
    in_use_mib: int | None = None
    mps_fault: bool = False
    broken: str = ""


def blame(moment: OomSnapshot) -> tuple[Blame, str]:
    """The cause, and why in words."""
    if moment.broken:
        return Blame.HARDWARE, moment.broken
    if moment.mps_fault:
        return Blame.MPS_FAULT, "its MPS server failed, with every client of it"
    last = moment.last
    if last is None:
        if moment.fenced:
            return Blame.SELF, f"it met its own limit of {_gib(moment.share_mib)}"
        return Blame.UNKNOWN, "nothing was measured on its GPU"
    held = max(int(last["held_mib"]), moment.in_use_mib or 0)
    wanted = held + (moment.requested_mib or 0)
    if moment.share_mib and held > moment.share_mib + NEAR_MIB:
        return Blame.SELF, f"it held {_gib(held)} of {_gib(moment.share_mib)} promised"
    if not moment.fenced:
        foreign = int(last.get("foreign_mib") or 0)
        over = _overrun(last, moment.promised or {})
        if over is not None and over[1] >= foreign:
            job_id, by_mib = over
            return Blame.NEIGHBOUR, f"job {job_id} held {_gib(by_mib)} more than it was promised"
        if foreign > NEAR_MIB:
            return Blame.FOREIGN, f"processes of no job held {_gib(foreign)}"
    if not moment.share_mib or wanted > moment.share_mib:
        limit = f" of {_gib(moment.share_mib)} promised" if moment.share_mib else " on a whole GPU"
        return Blame.SELF, f"it held {_gib(held)} and asked for more{limit}"
    if moment.requested_mib is not None:
        return (
            Blame.FRAGMENTATION,
            f"it held {_gib(held)} of {_gib(moment.share_mib)} promised, and"
            f" {_gib(moment.requested_mib)} in one piece could not be had",
        )
    if held + NEAR_MIB >= moment.share_mib:
        return Blame.SELF, f"it held {_gib(held)} of {_gib(moment.share_mib)} promised"
    return Blame.UNKNOWN, f"it held {_gib(held)} of {_gib(moment.share_mib)} promised"


def _overrun(last: Mapping[str, Any], promised: Mapping[int, int]) -> tuple[int, int] | None:
    """The neighbour that held most above its promise, and by how much."""
    over = [
        (int(one["job_id"]), int(one["held_mib"]) - promised[int(one["job_id"])])
        for one in last.get("neighbours", ())
        if int(one["job_id"]) in promised
    ]
    worst = max(over, key=lambda each: each[1], default=None)
    return worst if worst is not None and worst[1] > NEAR_MIB else None


def at_fence(last: Mapping[str, Any], limit_mib: int, ended_s: float) -> bool:
    """Whether a run was at its limit in its last sample, shortly before it ended. A program that
    ends by its limit may leave nothing in its log: it was killed, or it logs elsewhere."""
    if limit_mib <= 0 or ended_s - float(last["at_s"]) > AT_FENCE_S:
        return False
    return int(last["held_mib"]) >= limit_mib - max(AT_FENCE * limit_mib, AT_FENCE_MIB)


def limit_held_by(method: str | None, fence: str | None, line: str) -> str:
    """What enforced the limit that a run met, by the ``method`` and ``fence`` that its Epilog
    reported and the ``line`` of its log; "" for nothing."""
    if fence == FenceLevel.CGROUP:
        return HOLDER[FenceLevel.CGROUP]
    if method == "mps":
        return HOLDER[FenceLevel.MPS]
    return HOLDER[FenceLevel.FRAMEWORK] if _ALLOWED.search(line) else ""


def _gib(mib: int) -> str:
    return f"{mib / 1024:.1f} GiB"
