# SPDX-License-Identifier: Apache-2.0
"""How fast jobs run on one seat: the model of interference, and what the seat adds to it."""

from collections.abc import Sequence
from dataclasses import replace

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.core.place.gpu_slot import GpuSlot, PlaceRequest
from slurm_coloc.core.place.interference import Interference

#: what is assumed of a job whose activity nobody knows
BUSY = Activity(1.0)


def activities(seat: GpuSlot, *asks: PlaceRequest) -> list[Activity]:
    """Expected activities of a seat's jobs and of newcomers; an unknown one counts as busy."""
    return [one.ask.activity or BUSY for one in seat.residents] + [
        ask.activity or BUSY for ask in asks
    ]


def expected_speeds(seat: GpuSlot, model: Interference, *asks: PlaceRequest) -> list[float]:
    """Speeds (1 = alone on a whole GPU) of a seat's jobs and of newcomers, in this order."""
    everyone = [one.ask for one in seat.residents]
    everyone.extend(asks)
    return speeds_on(seat, model, everyone, [ask.activity or BUSY for ask in everyone])


def speeds_on(
    seat: GpuSlot, model: Interference, asks: Sequence[PlaceRequest], known: Sequence[Activity]
) -> list[float]:
    """Speeds of jobs with these activities on a seat.

    An MPS server has one user unless it is told otherwise: jobs of several users then take turns
    (streams). On a MIG instance each job is first as fast as the instance alone makes it; beside
    others it counts with its share of the instance's SMs.
    """
    if seat.method == "mig":
        cut = [seat.fraction_for(ask) for ask in asks]
        return [model.slice_speed(one, part) for one, part in zip(known, cut, strict=True)]
    if len(asks) == 1:
        return [1.0 if seat.fraction == 1.0 else model.slice_speed(known[0], seat.fraction)]
    method = seat.method
    if method == "mps" and not seat.multi_user and len({ask.user for ask in asks}) > 1:
        method = "streams"
    if seat.fraction == 1.0:
        return model.speeds(known, method)
    alone = [model.slice_speed(one, seat.fraction) for one in known]
    inside = [_inside(one, seat.fraction) for one in known]
    together = model.speeds(inside, method)
    return [mine * beside for mine, beside in zip(alone, together, strict=True)]


def _inside(job: Activity, fraction: float) -> Activity:
    """A job's activity as a ratio of a MIG instance that has that fraction of the SMs."""
    longer = max(1.0, job.smact / fraction)
    return replace(job, smact=min(1.0, job.smact / fraction), gract=min(1.0, job.engine * longer))
