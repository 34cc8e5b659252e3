# SPDX-License-Identifier: Apache-2.0
"""Why a run ended, and what caused an out-of-memory.

Why a run ended follows from Slurm's state and the Epilog's report on the log. A CUDA out-of-memory
ends as FAILED, never as OUT_OF_MEMORY: that state means the host's memory (tried on 22.05 to
26.05). A log may also show an out-of-memory that the program caught: with exit code 0 it is only
noted.

Blame asks: if everybody else had held what they were promised, would this run have got what it
asked for? A run that held or asked for more than its promise is its own cause, whatever others did.
One within it that met a full GPU is a victim, fenced or not: of the neighbour or the strangers that
held most above their promise or, where none of them was measured above it, of nobody in particular.
The log counts for the run's own figures and for whether the GPU was full; a neighbour is named by
the agent's sample alone, since the log is the user's.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from slurm_coloc.core.codes import Code
from slurm_coloc.core.slurm.job import JobView

# MiB that a sample of a second ago may miss, with the context of one process and rounding.
NEAR_MIB = 512
#: the figures of a log are rounded to a hundredth of a GiB, and up to a MiB
ROUNDED_MIB = 16
# A job was at its fence if a sample at most AT_FENCE_S before its end was this near to it.
AT_FENCE, AT_FENCE_MIB, AT_FENCE_S = 0.01, 96, 5.0


class Outcome(StrEnum):
    """How a run of a job ended."""

    COMPLETED = "completed"
    OOM_GPU = "oom-gpu"
    OVERRUN = "overrun"  # the agent ended processes that held more than they were promised
    OOM_HOST = "oom-host"
    FAILED = "failed"
    CANCELLED = "cancelled"
    IDLE = "idle"  # we cancelled it, by the site's rule: it held a GPU and did not use it
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
    # others had filled it, none of them above its promise as far as was measured
    FULL = "full-gpu", "caused by others who had filled the GPU"
    # of the job's own allocator, within what it was promised
    FRAGMENTATION = "fragmentation", "caused by fragmented memory"
    MPS_FAULT = "mps-fault", "caused by a fault of MPS"
    HARDWARE = "hardware", "caused by a fault of its GPU"  # or its driver's
    UNKNOWN = "unknown", "cause unknown"


WHOSE = {blame: blame.text for blame in Blame}


class Culprit(NamedTuple):
    """The neighbour that held most above its promise (MiB of one GPU)."""

    job_id: int
    held_mib: int
    promised_mib: int

    @property
    def over_mib(self) -> int:
        """What it held above its promise."""
        return self.held_mib - self.promised_mib


class Cause(NamedTuple):
    """The cause, why in words, and the neighbour where it was one."""

    blame: Blame
    why: str
    culprit: Culprit | None = None


@dataclass(frozen=True, slots=True)
class OomSnapshot:
    """What is known of the moment of the out-of-memory. Memory in MiB of one GPU.

    ``share_mib``: promised to the job, 0 for the whole GPU. ``fenced``: a fence held it to that.
    ``last``: the last sample of its agent; None without one. ``promised``: to its neighbours, by
    job id, which may hold ``context_mib`` more for each process, except those that their agent saw
    ``overran``. ``broken``: the driver's report on the GPU. From the text of the log:
    ``requested_mib``, ``in_use_mib`` (of the program itself: the sample may be older), ``free_mib``
    of ``capacity_mib``, ``others_mib`` of other processes.
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
    capacity_mib: int | None = None
    others_mib: int | None = None
    overran: frozenset[int] = frozenset()
    context_mib: int = NEAR_MIB

    def sampled(self, name: str) -> int | None:
        """A figure of the last sample; None where there is none."""
        found = self.last.get(name) if self.last else None
        return None if found is None else int(found)

    @property
    def held_mib(self) -> int:
        """What the run held, by the sample or by its own log."""
        return max(self.sampled("held_mib") or 0, self.in_use_mib or 0)

    @property
    def neighbours(self) -> list[Mapping[str, int]]:
        """Each other job of the sample: ``job_id``, ``held_mib``, ``processes``."""
        return list(self.last.get("neighbours", ())) if self.last else []


def blame(moment: OomSnapshot) -> Cause:
    """The cause, and why in words."""
    if moment.broken:
        return Cause(Blame.HARDWARE, moment.broken)
    if moment.mps_fault:
        return Cause(Blame.MPS_FAULT, "its MPS server failed, with every client of it")
    held = f"it held {_gib(moment.held_mib)}"
    held += f" of {_gib(moment.share_mib)} promised" if moment.share_mib else " on a whole GPU"
    if own := _own_doing(moment, held):
        return Cause(Blame.SELF, own)
    full = _full(moment)
    # Nothing but a full GPU ends a run that has no fence and is within its promise.
    if (full or (full is None and not moment.fenced)) and (found := _others(moment)):
        return found
    if full:
        others = moment.others_mib
        by = f": by its log other processes held {_gib(others)}" if others else ""
        return Cause(Blame.FULL, f"{held} and the GPU was full{by}")
    return _in_room(moment, held)


def _own_doing(moment: OomSnapshot, held: str) -> str:
    """How the run held or asked for more than it was promised; "" where it did not."""
    share, mib, asked = moment.share_mib, moment.held_mib, moment.requested_mib
    if not share:
        card = _card_mib(moment)
        more = asked is not None and card is not None and mib + asked > card
        return f"{held} and asked for more" if more else ""
    if asked is not None and mib + asked > share + ROUNDED_MIB:
        return f"{held} and asked for more"
    at_fence = moment.fenced and asked is None and mib >= fence_met_mib(share)
    return held if at_fence or mib > share + NEAR_MIB else ""


def _card_mib(moment: OomSnapshot) -> int | None:
    """The memory of the GPU, by its last sample or the log; None where neither tells."""
    free = moment.sampled("gpu_free_mib")
    if free is None:
        return moment.capacity_mib
    used = (moment.sampled("held_mib") or 0) + (moment.sampled("foreign_mib") or 0)
    return free + used + sum(one["held_mib"] for one in moment.neighbours)


def _full(moment: OomSnapshot) -> bool | None:
    """Whether the GPU had no room for what the run asked for; None where nobody knows.

    The log's figure is of that very moment. Under a fence it is only the GPU's where the capacity
    beside it is the GPU's, not the share's.
    """
    asked = moment.requested_mib
    of_gpu = not moment.fenced or (moment.capacity_mib or 0) > moment.share_mib + NEAR_MIB
    if moment.free_mib is not None and of_gpu:
        return moment.free_mib < (NEAR_MIB if asked is None else asked)
    free = moment.sampled("gpu_free_mib")
    if free is None or not moment.fenced:
        return None
    grown = moment.held_mib - (moment.sampled("held_mib") or 0)
    return free - grown < (asked or 0) + NEAR_MIB


def _others(moment: OomSnapshot) -> Cause | None:
    """Who held most above the promise: a neighbour, or processes of no job; None for nobody."""
    promised = moment.promised or {}
    known = [
        (Culprit(job_id, one["held_mib"], promised[job_id]), one.get("processes") or 1)
        for one in moment.neighbours
        if (job_id := one["job_id"]) in promised
    ]
    over = [
        one
        for one, processes in known
        if one.over_mib > (0 if one.job_id in moment.overran else moment.context_mib * processes)
    ]
    foreign = moment.sampled("foreign_mib") or 0
    worst = max(over, key=lambda each: each.over_mib, default=None)
    if worst is not None and worst.over_mib >= foreign:
        why = f"job {worst.job_id} held {_gib(worst.over_mib)} more than it was promised"
        return Cause(Blame.NEIGHBOUR, why, worst)
    if foreign > NEAR_MIB:
        return Cause(Blame.FOREIGN, f"processes of no job held {_gib(foreign)}")
    return None


def _in_room(moment: OomSnapshot, held: str) -> Cause:
    """The cause where nobody else is known to have filled the GPU."""
    share, asked = moment.share_mib, moment.requested_mib
    if moment.last is None and not moment.held_mib:
        if moment.fenced:
            return Cause(Blame.SELF, f"it met its own limit of {_gib(share)}")
        return Cause(Blame.UNKNOWN, "nothing was measured on its GPU")
    if not share:
        return Cause(Blame.SELF, f"{held} and asked for more")
    if asked is not None:
        pieces = f"{held}, and {_gib(asked)} in one piece could not be had"
        return Cause(Blame.FRAGMENTATION, pieces)
    return Cause(Blame.SELF if moment.held_mib + NEAR_MIB >= share else Blame.UNKNOWN, held)


def at_fence(last: Mapping[str, Any], limit_mib: int, ended_s: float) -> bool:
    """Whether a run was at its limit in its last sample, shortly before it ended. A program that
    ends by its limit may leave nothing in its log: it was killed, or it logs elsewhere."""
    if limit_mib <= 0 or ended_s - float(last["at_s"]) > AT_FENCE_S:
        return False
    return 0 < int(last["held_mib"]) >= fence_met_mib(limit_mib)


def fence_met_mib(limit_mib: int) -> float:
    """From how much memory (MiB) on a run counts as being at its limit."""
    return limit_mib - max(AT_FENCE * limit_mib, AT_FENCE_MIB)


def _gib(mib: int) -> str:
    return f"{mib / 1024:.1f} GiB"
