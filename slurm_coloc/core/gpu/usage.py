# SPDX-License-Identifier: Apache-2.0
"""Evaluates a run's use from the records of its nodes' agents (form: flow/nodes/usage).

A run has a record of each node. Everything here is of this run alone, also on a shared GPU.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Record = Mapping[str, Any]

# An agent that started later than this after the run, and after this part of it, may have missed a
# peak; a training takes most of its memory in its first steps.
LATE_S, LATE_PART = 10.0, 0.1


@dataclass(frozen=True, slots=True)
class OwnPeak:
    """``peak_mib`` of the fullest GPU. ``whole``: the run was watched from its start without a gap;
    else it may have used more."""

    peak_mib: int
    whole: bool


def own_peak(records: Sequence[Record], start_s: float | None, end_s: float) -> OwnPeak | None:
    """The most memory that the run held of one GPU; None where no record shows any."""
    held = [gpu["peak_mib"] for one in records for gpu in one["gpus"] if gpu["peak_mib"]]
    if not held:
        return None
    began_s = start_s or 0.0
    late_s = max(one["since_s"] for one in records) - began_s
    # The driver's accounting covers an agent's late start or absence: then it is ``complete``.
    complete = [one["complete"] for one in records if "complete" in one]
    late = late_s > max(LATE_S, LATE_PART * (end_s - began_s))
    return OwnPeak(max(held), all(complete) and (len(complete) == len(records) or not late))


# JAX takes 75 % of the card at its first operation, TensorFlow all that it can get, and neither
# gives any back (their documentation: "GPU memory allocation", "Limiting GPU memory growth").
TAKEN_RATIO, FLAT_RATIO = 0.7, 0.98


def taken_at_once(records: Sequence[Record]) -> bool:
    """Whether a run's memory looks like that of a framework that takes a GPU at its start: most of
    the GPU from one step of its series to the next, and the same until its end. Then its peak does
    not tell what the model needs. A training that needs that much all the time looks alike. False
    where the size of the GPU or the series is not known."""
    for record in records:
        series = (record.get("series") or {}).get("memory_mib") or ()
        held = [mib for mib in series if mib]
        total = max((gpu.get("total_mib") or 0 for gpu in record["gpus"]), default=0)
        if not total or not held or max(held) < TAKEN_RATIO * total:
            continue
        # The first step may be of the time before, the last one of the end.
        inner = held[1:-1] or [max(held)]
        if min(inner) >= FLAT_RATIO * max(held):
            return True
    return False


@dataclass(frozen=True, slots=True)
class Totals:
    """Over all GPUs of a run. ``smact``: mean SM activity (ratio); ``smact_how``: ``alone`` where
    every figure was measured, ``split`` where the activity of a shared GPU was divided.
    ``energy_j``: the run's share. None: was not measured, ``why`` has the reason."""

    smact: float | None
    smact_how: str
    energy_j: float | None
    neighbours: int
    why: str


def totals(records: Sequence[Record]) -> Totals:
    gpus = [gpu for one in records for gpu in one["gpus"]]
    acts = [gpu["smact_mean"] for gpu in gpus if gpu.get("smact_mean") is not None]
    split = any(gpu.get("smact_how") == "split" for gpu in gpus)
    energy = [gpu["energy_j"] for gpu in gpus if gpu.get("energy_j") is not None]
    others = {beside["job_id"] for one in records for beside in one.get("neighbours", ())}
    reasons = [text for one in records for text in (one.get("why") or {}).values() if text]
    return Totals(
        sum(acts) / len(acts) if acts else None,
        "" if not acts else "split" if split else "alone",
        sum(energy) if energy else None,
        len(others),
        reasons[0] if reasons else "",
    )


def alone_smact(records: Sequence[Record]) -> float | None:
    """Mean SM activity (ratio) of a run that was alone on its GPUs all the time; else, or without a
    measurement, None: beside others a training keeps the GPU less busy."""
    found = totals(records)
    quiet = found.neighbours == 0 and not any(
        gpu.get("neighbours_max") for one in records for gpu in one["gpus"]
    )
    return found.smact if quiet and found.smact_how == "alone" else None


def fullest(records: Sequence[Record]) -> Record | None:
    """The record whose series has the highest memory: the one to draw."""
    drawn = [one for one in records if (one.get("series") or {}).get("memory_mib")]
    return max(drawn, key=_highest, default=None)


def _highest(record: Record) -> int:
    """Of the series; a step without a sample is null."""
    return max((mib for mib in record["series"]["memory_mib"] if mib is not None), default=0)
