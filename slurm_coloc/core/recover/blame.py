# SPDX-License-Identifier: Apache-2.0
"""What caused an out-of-memory on a GPU, by what each held and what each was promised.

The question is always the same: if everybody else had held what they were promised, would this run
have got what it asked for? A run that held or asked for more than its own promise is its own cause,
whatever others did. A run within its promise that met a full GPU is a victim, fenced or not: of the
neighbour or the strangers that held most above their promise, or, where none of them was measured
above it, of nobody in particular. Where the GPU had room, the memory was there in pieces.

What the log says counts for the run's own figures and for whether the GPU was full. A neighbour is
named by the agent's sample alone: the log is the user's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from slurm_coloc.core.recover.outcome import Blame, fence_met_mib

# MiB that a sample of a second ago may miss, with the context of one process and rounding.
NEAR_MIB = 512
#: the figures of a log are rounded to a hundredth of a GiB, and up to a MiB
ROUNDED_MIB = 16


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
    job id. ``overran``: neighbours that the agent saw above their fence at that time.
    From the text of the log: ``requested_mib``, ``in_use_mib`` (of the program itself: the sample
    may be older), ``free_mib`` of ``capacity_mib``, and ``others_mib`` of other processes.
    ``broken``: the driver's report on the GPU.
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

    @property
    def held_mib(self) -> int:
        """What the run held, by the sample or by its own log."""
        return max(int(self.last["held_mib"]) if self.last else 0, self.in_use_mib or 0)

    @property
    def foreign_mib(self) -> int:
        """What processes of no job held."""
        return int(self.last.get("foreign_mib") or 0) if self.last else 0

    @property
    def neighbours(self) -> Mapping[int, tuple[int, int]]:
        """What each other job held, and in how many processes."""
        found = self.last.get("neighbours", ()) if self.last else ()
        return {
            int(one["job_id"]): (int(one["held_mib"]), int(one.get("processes") or 1))
            for one in found
        }


def blame(moment: OomSnapshot) -> Cause:
    """The cause, and why in words."""
    if moment.broken:
        return Cause(Blame.HARDWARE, moment.broken)
    if moment.mps_fault:
        return Cause(Blame.MPS_FAULT, "its MPS server failed, with every client of it")
    if own := _own_doing(moment):
        return Cause(Blame.SELF, own)
    full = _full(moment)
    # Nothing but a full GPU ends a run that has no fence and is within its promise.
    if (full or (full is None and not moment.fenced)) and (found := _others(moment)):
        return found
    if full:
        return Cause(Blame.FULL, _filled(moment))
    return _in_room(moment)


def _own_doing(moment: OomSnapshot) -> str:
    """How the run held or asked for more than it was promised; "" where it did not."""
    share, held, asked = moment.share_mib, moment.held_mib, moment.requested_mib
    if not share:
        card = _card_mib(moment)
        more = asked is not None and card is not None and held + asked > card
        return f"it held {_gib(held)} and asked for more on a whole GPU" if more else ""
    if held > share + NEAR_MIB:
        return f"it held {_gib(held)} of {_gib(share)} promised"
    if asked is not None and held + asked > share + ROUNDED_MIB:
        return f"it held {_gib(held)} and asked for more of {_gib(share)} promised"
    if moment.fenced and asked is None and held >= fence_met_mib(share):
        return f"it held {_gib(held)} of {_gib(share)} promised"
    return ""


def _card_mib(moment: OomSnapshot) -> int | None:
    """The memory of the GPU, by its last sample or the log; None where neither tells."""
    if moment.last is None or moment.last.get("gpu_free_mib") is None:
        return moment.capacity_mib
    others = sum(held for held, _ in moment.neighbours.values())
    used = int(moment.last["held_mib"]) + others + moment.foreign_mib
    return int(moment.last["gpu_free_mib"]) + used


def _full(moment: OomSnapshot) -> bool | None:
    """Whether the GPU had no room for what the run asked for; None where nobody knows.

    The log's figure is of that very moment. Under a fence it is only the GPU's where the capacity
    beside it is the GPU's, not the share's.
    """
    capacity = moment.capacity_mib or 0
    of_gpu = not moment.fenced or capacity > moment.share_mib + NEAR_MIB
    if moment.free_mib is not None and of_gpu:
        least = NEAR_MIB if moment.requested_mib is None else moment.requested_mib
        return moment.free_mib < least
    if moment.last is None or moment.last.get("gpu_free_mib") is None or not moment.fenced:
        return None
    grown = moment.held_mib - int(moment.last["held_mib"])
    free = int(moment.last["gpu_free_mib"]) - grown
    return free < (moment.requested_mib or 0) + NEAR_MIB


def _others(moment: OomSnapshot) -> Cause | None:
    """Who held most above the promise: a neighbour, or processes of no job; None for nobody."""
    over = _overrun(moment)
    foreign = moment.foreign_mib
    if over is not None and over.over_mib >= foreign:
        why = f"job {over.job_id} held {_gib(over.over_mib)} more than it was promised"
        return Cause(Blame.NEIGHBOUR, why, over)
    if foreign > NEAR_MIB:
        return Cause(Blame.FOREIGN, f"processes of no job held {_gib(foreign)}")
    return None


def _overrun(moment: OomSnapshot) -> Culprit | None:
    """The neighbour that held most above its promise, by more than a context for each process or
    as its agent saw it overrun."""
    promised = moment.promised or {}
    over = [
        Culprit(job_id, held, promised[job_id])
        for job_id, (held, processes) in moment.neighbours.items()
        if job_id in promised
        and held - promised[job_id] > (0 if job_id in moment.overran else NEAR_MIB * processes)
    ]
    return max(over, key=lambda each: each.over_mib, default=None)


def _filled(moment: OomSnapshot) -> str:
    """That others had filled the GPU, in words."""
    held = f"it held {_gib(moment.held_mib)}"
    if moment.share_mib:
        held += f" of {_gib(moment.share_mib)} promised"
    text = f"{held} and the GPU was full"
    if moment.others_mib:
        text += f": by its log other processes held {_gib(moment.others_mib)}"
    elif unknown := sorted(moment.neighbours.keys() - (moment.promised or {}).keys()):
        text += f": what was promised to job {', '.join(map(str, unknown[:4]))} is not known"
    return text


def _in_room(moment: OomSnapshot) -> Cause:
    """The cause where nobody else is known to have filled the GPU."""
    share, held = moment.share_mib, moment.held_mib
    if moment.last is None and not moment.held_mib:
        if moment.fenced:
            return Cause(Blame.SELF, f"it met its own limit of {_gib(share)}")
        return Cause(Blame.UNKNOWN, "nothing was measured on its GPU")
    if not share:
        return Cause(Blame.SELF, f"it held {_gib(held)} and asked for more on a whole GPU")
    if moment.requested_mib is not None:
        why = (
            f"it held {_gib(held)} of {_gib(share)} promised, and"
            f" {_gib(moment.requested_mib)} in one piece could not be had"
        )
        return Cause(Blame.FRAGMENTATION, why)
    known = Blame.SELF if held + NEAR_MIB >= share else Blame.UNKNOWN
    return Cause(known, f"it held {_gib(held)} of {_gib(share)} promised")


def _gib(mib: int) -> str:
    return f"{mib / 1024:.1f} GiB"
