# SPDX-License-Identifier: Apache-2.0
"""How fast jobs run on one slot, by the model of interference and the kind of slot."""

from collections.abc import Sequence
from dataclasses import replace

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.core.place.gpu_slot import GpuSlot, PlaceRequest
from slurm_coloc.core.place.interference import Interference

#: assumed of a job whose activity is not known
BUSY = Activity(1.0)


def activities(slot: GpuSlot, *requests: PlaceRequest) -> list[Activity]:
    """Expected activities of a slot's jobs and of newcomers; an unknown one counts as busy."""
    return [one.request.activity or BUSY for one in slot.residents] + [
        request.activity or BUSY for request in requests
    ]


def expected_speeds(slot: GpuSlot, model: Interference, *requests: PlaceRequest) -> list[float]:
    """Speeds (1 = alone on a whole GPU) of a slot's jobs and of newcomers, in this order."""
    everyone = [one.request for one in slot.residents]
    everyone.extend(requests)
    return speeds_on(slot, model, everyone, [request.activity or BUSY for request in everyone])


def speeds_on(
    slot: GpuSlot, model: Interference, requests: Sequence[PlaceRequest], known: Sequence[Activity]
) -> list[float]:
    """Speeds of jobs with these activities on a slot.

    An MPS server has one user unless configured otherwise: jobs of several users then take turns
    (streams). On a MIG instance the instance alone limits each job first; beside others its
    activity counts as a ratio of the instance's SMs.
    """
    if slot.method == "mig":
        cut = [slot.fraction_for(request) for request in requests]
        return [model.slice_speed(one, part) for one, part in zip(known, cut, strict=True)]
    if len(requests) == 1:
        return [1.0 if slot.fraction == 1.0 else model.slice_speed(known[0], slot.fraction)]
    method = slot.method
    if method == "mps" and not slot.multi_user and len({request.user for request in requests}) > 1:
        method = "streams"
    if slot.fraction == 1.0:
        return model.speeds(known, method)
    alone = [model.slice_speed(one, slot.fraction) for one in known]
    inside = [_inside(one, slot.fraction) for one in known]
    together = model.speeds(inside, method)
    return [mine * beside for mine, beside in zip(alone, together, strict=True)]


def _inside(job: Activity, fraction: float) -> Activity:
    """A job's activity as a ratio of a MIG instance that has that fraction of the SMs."""
    longer = max(1.0, job.smact / fraction)
    return replace(job, smact=min(1.0, job.smact / fraction), gract=min(1.0, job.engine * longer))
