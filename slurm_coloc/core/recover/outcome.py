# SPDX-License-Identifier: Apache-2.0
"""Why a run ended, the names of the causes of an out-of-memory, and which limit a run met.

Why a run ended follows from Slurm's state and the Epilog's report on the log. A CUDA out-of-memory
ends as FAILED, never as OUT_OF_MEMORY: that state means the host's memory (tried on 22.05 to
26.05). A log may also show an out-of-memory that the program caught: with exit code 0 it is only
noted. core/recover/blame finds the cause.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from slurm_coloc.core.codes import Code
from slurm_coloc.core.gpu.fence import FenceLevel
from slurm_coloc.core.slurm.job import JobView

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


def outcome_of(view: JobView, *, oom: bool) -> Outcome:
    """The outcome of an ended run. ``oom``: its log shows a GPU out-of-memory; only a FAILED job
    with that ran out of GPU memory."""
    if view.state in _BY_STATE:
        return _BY_STATE[view.state]
    if view.signal == KILLED or view.exit_code == 128 + KILLED:
        return Outcome.FAILED
    return Outcome.OOM_GPU if oom else Outcome.FAILED


class Blame(Code):
    """What caused a run's out-of-memory."""

    SELF = "self", "caused by the job itself"
    NEIGHBOUR = "neighbour", "caused by a neighbour"
    FOREIGN = "foreign", "caused by a process of no job"
    # others had filled it, none of them above its promise as far as was measured
    FULL = "full-gpu", "caused by others who had filled the GPU"
    # of the job's own allocator, within what it was promised
    FRAGMENTATION = "fragmentation", "caused by fragmented memory"
    MPS_FAULT = "mps-fault", "caused by a fault of MPS"
    HARDWARE = "hardware", "caused by a fault of its GPU"  # or its driver's
    UNKNOWN = "unknown", "cause unknown"


WHOSE = {blame: blame.text for blame in Blame}


def at_fence(last: Mapping[str, Any], limit_mib: int, ended_s: float) -> bool:
    """Whether a run was at its limit in its last sample, shortly before it ended. A program that
    ends by its limit may leave nothing in its log: it was killed, or it logs elsewhere."""
    if limit_mib <= 0 or ended_s - float(last["at_s"]) > AT_FENCE_S:
        return False
    return 0 < int(last["held_mib"]) >= fence_met_mib(limit_mib)


def fence_met_mib(limit_mib: int) -> float:
    """From how much memory (MiB) on a run counts as being at its limit."""
    return limit_mib - max(AT_FENCE * limit_mib, AT_FENCE_MIB)


def limit_held_by(method: str | None, fence: str | None, line: str) -> str:
    """What enforced the limit that a run met, by the ``method`` and ``fence`` that its Epilog
    reported and the ``line`` of its log; "" for nothing."""
    if fence == FenceLevel.CGROUP:
        return HOLDER[FenceLevel.CGROUP]
    if method == "mps":
        return HOLDER[FenceLevel.MPS]
    return HOLDER[FenceLevel.FRAMEWORK] if _ALLOWED.search(line) else ""
