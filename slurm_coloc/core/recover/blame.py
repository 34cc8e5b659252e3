# SPDX-License-Identifier: Apache-2.0
"""Whose fault an out-of-memory on a shared GPU was: the job's own, a neighbour's, a stranger's.

Judged from what the agent saw last (flow/nodes/usage: ``last``), what each job was promised, and
what the log says. Facts in, a verdict and a sentence out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

# What a sample of a second ago may miss, and what contexts and rounding come to (MiB).
NEAR_MIB = 512
# A job at its fence: within this of it (ratio, MiB) in a sample so shortly before its end (s).
AT_FENCE, AT_FENCE_MIB, AT_FENCE_S = 0.01, 96, 5.0


class Blame(StrEnum):
    """Who or what a run's out-of-memory goes back to."""

    SELF = "self"
    NEIGHBOUR = "neighbour"
    FOREIGN = "foreign"  # a process of no job
    FRAGMENTATION = "fragmentation"  # of the job's own allocator, within what it was promised
    MPS_FAULT = "mps-fault"
    HARDWARE = "hardware"  # the GPU or its driver failed
    UNKNOWN = "unknown"


#: who it was, for people
WHOSE = {
    Blame.SELF: "its own doing",
    Blame.NEIGHBOUR: "a neighbour's doing",
    Blame.FOREIGN: "a stranger's doing",
    Blame.FRAGMENTATION: "memory in pieces",
    Blame.MPS_FAULT: "a fault of MPS",
    Blame.HARDWARE: "its GPU's failing",
    Blame.UNKNOWN: "nobody knows whose doing",
}


@dataclass(frozen=True, slots=True)
class OomSnapshot:
    """What is known of the moment. Memory in MiB of one GPU.

    ``share_mib``: promised to the job, 0 for the whole GPU. ``fenced``: a limit held it there.
    ``last``: the last sample of its agent; None without one. ``promised``: what its neighbours were
    promised, by job id. ``requested_mib``, ``free_mib``, ``in_use_mib`` (what the program says that
    it held: the sample may be older): from the text of the log. ``broken``: what the driver
    reported of the GPU when the run ended.
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


def blame(scene: OomSnapshot) -> tuple[Blame, str]:
    """Who is to blame, and why in words."""
    if scene.broken:
        return Blame.HARDWARE, scene.broken
    if scene.mps_fault:
        return Blame.MPS_FAULT, "its MPS server failed, with every client of it"
    last = scene.last
    if last is None:
        if scene.fenced:
            return Blame.SELF, f"it met its own limit of {_gib(scene.share_mib)}"
        return Blame.UNKNOWN, "nothing was measured on its GPU"
    held = max(int(last["held_mib"]), scene.in_use_mib or 0)
    wanted = held + (scene.requested_mib or 0)
    if scene.share_mib and held > scene.share_mib + NEAR_MIB:
        return Blame.SELF, f"it held {_gib(held)} of {_gib(scene.share_mib)} promised"
    if not scene.fenced:
        foreign = int(last.get("foreign_mib") or 0)
        over = _overrun(last, scene.promised or {})
        if over is not None and over[1] >= foreign:
            job_id, by_mib = over
            return Blame.NEIGHBOUR, f"job {job_id} held {_gib(by_mib)} more than it was promised"
        if foreign > NEAR_MIB:
            return Blame.FOREIGN, f"processes of no job held {_gib(foreign)}"
    if not scene.share_mib or wanted > scene.share_mib:
        limit = f" of {_gib(scene.share_mib)} promised" if scene.share_mib else " on a whole GPU"
        return Blame.SELF, f"it held {_gib(held)} and asked for more{limit}"
    if scene.requested_mib is not None:
        return (
            Blame.FRAGMENTATION,
            f"it held {_gib(held)} of {_gib(scene.share_mib)} promised, and"
            f" {_gib(scene.requested_mib)} in one piece could not be had",
        )
    if held + NEAR_MIB >= scene.share_mib:
        return Blame.SELF, f"it held {_gib(held)} of {_gib(scene.share_mib)} promised"
    return Blame.UNKNOWN, f"it held {_gib(held)} of {_gib(scene.share_mib)} promised"


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
    """Whether a run stood at its limit when it was last seen, shortly before it ended. A program
    that dies of it may leave no word in its log: it was killed, or it logs elsewhere."""
    if limit_mib <= 0 or ended_s - float(last["at_s"]) > AT_FENCE_S:
        return False
    return int(last["held_mib"]) >= limit_mib - max(AT_FENCE * limit_mib, AT_FENCE_MIB)


def _gib(mib: int) -> str:
    return f"{mib / 1024:.1f} GiB"
