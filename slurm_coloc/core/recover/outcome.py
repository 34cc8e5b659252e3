# SPDX-License-Identifier: Apache-2.0
"""Why a job ended, from Slurm's state and what the Epilog found in its log.

A CUDA out-of-memory ends as FAILED, never as OUT_OF_MEMORY: that state means the host's memory
(tried on 22.05 to 26.05). A log may also show an out-of-memory that the program caught: with exit
code 0 it is noted and nothing else.
"""

from enum import StrEnum

from slurm_coloc.core.slurm.job import JobView


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


# SIGKILL comes from outside, most often for host memory (without cgroups Slurm itself reports that
# as FAILED, tried on 22.05 and 24.11); a framework that runs out of GPU memory exits.
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
    """Judge an ended run. ``oom``: its log has evidence of a GPU out-of-memory; only a FAILED job
    with that ran out of GPU memory."""
    if view.state in _BY_STATE:
        return _BY_STATE[view.state]
    if view.signal == KILLED or view.exit_code == 128 + KILLED:
        return Outcome.FAILED
    return Outcome.OOM_GPU if oom else Outcome.FAILED
