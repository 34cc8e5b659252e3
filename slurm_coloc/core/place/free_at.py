# SPDX-License-Identifier: Apache-2.0
"""When a GPU is expected to have room for a waiting job, by the expected ends of its jobs."""

from collections.abc import Sequence

from slurm_coloc.core.place.gpu_slot import INF
from slurm_coloc.core.place.placing import (
    Conditions,
    GpuSlot,
    PlaceRequest,
    Resident,
    View,
    admits,
    may_share_with,
)


def free_at(ask: PlaceRequest, seat: GpuSlot, view: View, idle_only: bool = False) -> float | None:
    """When enough of a seat's jobs are expected to have ended for a newcomer (s).

    Minus infinity: now. Infinity: nobody knows. None: it can never be put there.
    """
    whole_seat = idle_only or alone(ask)
    if not ask.share:
        if not seat.for_whole:
            return None
    elif (not seat.pool and not idle_only) or (ask.need_mib or 0) > seat.usable_mib:
        return None
    if not seat.residents:
        return -INF if seat.part is False or not seat.reserved_mib else INF
    if not (whole_seat or seat.whole) and _joins_now(ask, seat, view):
        return -INF
    latest = 0.0
    for one in seat.residents:
        if one.ends_s is None:
            return INF
        latest = max(latest, one.ends_s)
    if whole_seat or seat.whole or len(seat.residents) == 1:
        return latest
    ends = sorted(seat.residents, key=lambda one: one.ends_s or 0.0)
    for position, one in enumerate(ends[:-1], start=1):
        if fits(ask, seat, ends[position:], view.conditions):
            return one.ends_s
    return latest


def _joins_now(ask: PlaceRequest, seat: GpuSlot, view: View) -> bool:
    """Whether a job waits for other GPUs than this one, or only for newer telemetry of it."""
    rules = view.conditions
    if not fits(ask, seat, seat.residents, rules):
        return False
    return rules.telemetry or admits(ask, seat, rules, view.interference)


def alone(ask: PlaceRequest) -> bool:
    """Whether a job starts on idle GPUs only."""
    return not ask.share or ask.idle_only


def fits(ask: PlaceRequest, seat: GpuSlot, staying: Sequence[Resident], rules: Conditions) -> bool:
    """Whether a job could join those, as far as plans tell."""
    if not staying:
        return True
    if len(staying) >= rules.jobs or not may_share_with(ask, staying, rules.share_with):
        return False
    everyone = [one.ask for one in staying] + [ask]
    if any(not one.share for one in everyone):
        return False
    if seat.method == "mig" and (
        len(everyone) > 2 or not all(seat.halves(one) for one in everyone)
    ):
        return False
    if rules.by_plan:
        needs = [one.need_mib for one in everyone]
        if sum(seat.usable_mib if need is None else need for need in needs) > seat.usable_mib:
            return False
    if rules.budget is None:
        return True
    busy = sum(1.0 if one.activity is None else one.activity.smact for one in everyone)
    return busy <= rules.budget * seat.fraction + 1e-9
