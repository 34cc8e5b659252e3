# SPDX-License-Identifier: Apache-2.0
"""Interference-aware placement: the GPUs whose throughput the job raises most.

The model of interference predicts the cost of a neighbour from each job's solo activity (SM, DRAM,
graphics engine, and how sensitive it is to neighbours). The fitted model tells a job that waits for
PCIe or the host, which loses little, from one that fills the SMs. Among GPUs that gain alike, a
memory-heavy job goes beside compute-heavy ones: where the DRAM activity is lowest.

Where somebody needs whole GPUs a sharer goes beside others as long as it gains enough there, and
takes an idle GPU only where it does not.
"""

from slurm_coloc.core.place.gpu_slot import GpuSlot, PlaceRequest
from slurm_coloc.core.place.placing import Start, View
from slurm_coloc.core.place.queue_discipline import Tiered, first_that_starts
from slurm_coloc.core.place.speeds import BUSY, activities

#: of a job's SM activity, what it must gain beside others to be there before it is on an idle GPU.
#: 1,200 jobs on 64 GPUs, a third for whole ones, load 0.9: mean completion time 34 min (magm 37,
#: best-fit 40, without sharing 32); more fills fewer of the GPUs (tests/unit/policies/test_auto.py)
ENOUGH = 0.5
#: gains (ratio of one GPU's SM activity) that count as alike: a fifth of the model's error in a
#: speed (RMSE 0.107 over 72 measured pairs)
ALIKE = 0.02


def gain(request: PlaceRequest, slot: GpuSlot, view: View) -> float:
    """By how much the throughput of a slot grows: the sum of SM activity times speed (ratio)."""
    before = activities(slot)
    mine = request.activity or BUSY
    if not before:
        return mine.smact
    after = [*before, mine]
    model, method = view.interference, slot.method
    used = sum(
        job.smact * speed for job, speed in zip(after, model.speeds(after, method), strict=True)
    )
    return used - sum(
        job.smact * speed for job, speed in zip(before, model.speeds(before, method), strict=True)
    )


def _key(request: PlaceRequest, slot: GpuSlot, view: View) -> tuple[float, ...]:
    grows = round(gain(request, slot, view) / ALIKE)
    drama = sum(one.drama or 0.0 for one in activities(slot))
    heavy = (
        request.activity is not None
        and (request.activity.drama or 0.0) > request.activity.smact / 2
    )
    return (-grows, drama if heavy else 0.0, slot.free_mib, slot.index)


def _spares(request: PlaceRequest, slot: GpuSlot, view: View) -> int:
    """The order of GPUs for a sharer where somebody needs whole ones. 0: shared, and it gains
    enough there, or nothing is known of it; 1: idle; 2: shared, and it gains less."""
    if not slot.residents:
        return int(request.share)
    activity = request.activity
    gains = activity is None or gain(request, slot, view) >= ENOUGH * activity.smact
    return 0 if gains else 2


#: Among shared GPUs on which it gains enough the tightest, so that large jobs find room too.
_SPARING = Tiered(_spares, lambda slot: (slot.free_mib, slot.index))


class Interference:
    """Greedy: the first waiting job that may start, on the GPU that gains most."""

    name = "interference"

    def next(self, view: View) -> Start | None:
        return first_that_starts(view, _SPARING if view.is_mixed() else _key)


POLICY = Interference()
