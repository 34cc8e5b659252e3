# SPDX-License-Identifier: Apache-2.0
"""When a GPU is expected to have room for a waiting job, by the expected ends of its jobs."""

from collections.abc import Sequence

from slurm_coloc.core.place.gpu_slot import INF, GpuSlot, PlaceRequest, Resident
from slurm_coloc.core.place.placing import Conditions, View, admits, may_share_with


def free_at(
    request: PlaceRequest, slot: GpuSlot, view: View, idle_only: bool = False
) -> float | None:
    """When enough of a slot's jobs are expected to have ended for a newcomer (s).

    Minus infinity: now. Infinity: not known. None: it can never be put there.
    """
    whole_slot = idle_only or alone(request)
    if not request.share:
        if not slot.for_whole:
            return None
    elif (not slot.pool and not idle_only) or (request.need_mib or 0) > slot.usable_mib:
        return None
    if not slot.residents:
        return -INF if slot.part is False or not slot.reserved_mib else INF
    if not (whole_slot or slot.whole) and _joins_now(request, slot, view):
        return -INF
    latest = 0.0
    for one in slot.residents:
        if one.ends_s is None:
            return INF
        latest = max(latest, one.ends_s)
    if whole_slot or slot.whole or len(slot.residents) == 1:
        return latest
    ends = sorted(slot.residents, key=lambda one: one.ends_s or 0.0)
    for position, one in enumerate(ends[:-1], start=1):
        if fits(request, slot, ends[position:], view.conditions):
            return one.ends_s
    return latest


def _joins_now(request: PlaceRequest, slot: GpuSlot, view: View) -> bool:
    """Whether the slot has room now: the job waits for other GPUs, or only for newer telemetry."""
    rules = view.conditions
    if not fits(request, slot, slot.residents, rules):
        return False
    return rules.telemetry or admits(request, slot, rules, view.interference)


def alone(request: PlaceRequest) -> bool:
    """Whether a job starts on idle GPUs only."""
    return not request.share or request.idle_only


def fits(
    request: PlaceRequest, slot: GpuSlot, staying: Sequence[Resident], rules: Conditions
) -> bool:
    """Whether a job could join these jobs, by plan."""
    if not staying:
        return True
    if len(staying) >= rules.jobs or not may_share_with(request, staying, rules.share_with):
        return False
    everyone = [one.request for one in staying] + [request]
    if any(not one.share for one in everyone):
        return False
    if slot.method == "mig" and (
        len(everyone) > 2 or not all(slot.halves(one) for one in everyone)
    ):
        return False
    if rules.by_plan:
        needs = [one.need_mib for one in everyone]
        if sum(slot.usable_mib if need is None else need for need in needs) > slot.usable_mib:
            return False
    if rules.budget is None:
        return True
    busy = sum(1.0 if one.activity is None else one.activity.smact for one in everyone)
    return busy <= rules.budget * slot.fraction + 1e-9
