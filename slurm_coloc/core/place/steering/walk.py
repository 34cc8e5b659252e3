# SPDX-License-Identifier: Apache-2.0
"""Walks through the queue and answers for each waiting job."""

from collections.abc import Sequence

from slurm_coloc.core.place.gpu_slot import GpuSlot, PlaceRequest
from slurm_coloc.core.place.placing import Policy
from slurm_coloc.core.place.steering.by_plan import PlanOfQueue
from slurm_coloc.core.place.steering.gpus import GpuPlan, Slots, idle_first, request_of
from slurm_coloc.core.place.steering.snapshot import Act, Answer, Snapshot, Waiting, Why


def steer(snapshot: Snapshot, policy: Policy) -> tuple[tuple[Answer, ...], int]:
    """An answer for each waiting --coloc job, in Slurm's order, and the next ``turn``."""
    plan, ahead = GpuPlan(snapshot, policy), PlanOfQueue.of(snapshot, idle_first(snapshot))
    found, placed = [], 0
    slots: Sequence[GpuSlot] | None
    for job in snapshot.waiting:
        ahead.met(job)
        if not job.startable:
            if job.ours:
                found.append(_untouched(job, plan))
            continue
        if job.ours and placed >= snapshot.rules.ahead and not ahead.starts(job):
            found.append(_left(job, Why.ENOUGH))
            continue
        request = request_of(job, snapshot.rules.shard_mib)
        allowed = plan.allowed(job)
        if job.ours and job.given_up:
            answer, slots = _given_up(job, request, allowed, plan)
            found.append(answer)
            _expect(plan, request, slots, job, allowed)
            continue
        if placed < snapshot.rules.ahead and (job.ours or job.holdable) and ahead.holds(job):
            placed += 1
            found.append(Answer(job.job_id, Act.WAIT, Why.PLANNED))
            continue
        if not job.ours:
            if job.holdable:
                found.append(_left(job, Why.PLAN))
            _expect(plan, request, plan.next(request, allowed), job, allowed)
            continue
        placed += 1
        wanted = ahead.slots(job, plan.of_one_user(job, allowed))
        if wanted is not None and plan.may_start(request, wanted):
            answer, slots = _pinned(job, wanted, plan, Why.PLAN), wanted
        elif (soon := ahead.awaited(job)) and plan.is_early(job, request, soon):
            answer = Answer(job.job_id, Act.WAIT, Why.PLANNED)
            slots = [plan.slots[index] for index in soon]  # nobody behind it gets them meanwhile
        else:
            answer, slots = _place(job, request, allowed, plan)
        found.append(answer)
        _expect(plan, request, slots, job, allowed)
    return tuple(found), plan.turn


def _expect(
    plan: GpuPlan,
    request: PlaceRequest,
    slots: Sequence[GpuSlot] | None,
    job: Waiting,
    allowed: Slots,
) -> None:
    if slots is None:
        plan.blocked(request, allowed)
    else:
        plan.start(request, slots, job.run_s)


def _untouched(job: Waiting, plan: GpuPlan) -> Answer:
    """The answer for a job that Slurm would not start now: it keeps its pin while its node is open
    and its GPU has telemetry. A guarded one loses it: another user's job may come there first."""
    if job.pin is None or job.guarded(plan.snapshot.rules):
        return _left(job, Why.NOT_YET)
    if not job.nodes or not plan.open(job.pin):
        return _left(job, Why.CLOSED)
    if not plan.fresh(job.pin):
        return _left(job, Why.STALE)
    return Answer(job.job_id, Act.KEEP, Why.NOT_YET, job.pin)


def _left(job: Waiting, why: Why) -> Answer:
    return Answer(job.job_id, Act.NATIVE if job.pin is None else Act.UNPIN, why)


def _given_up(
    job: Waiting, request: PlaceRequest, allowed: Sequence[GpuSlot], plan: GpuPlan
) -> tuple[Answer, Sequence[GpuSlot] | None]:
    """The answer for a job that has waited long enough: Slurm places it. A guarded one is pinned to
    the next GPU that it may have, however busy that is; without one it asks for a whole GPU."""
    if not job.guarded(plan.snapshot.rules):
        return _left(job, Why.GAVE_UP), plan.next(request, allowed)
    here = [slot for slot in allowed if plan.pins[slot.index] == job.pin]
    slots = plan.first_with_room(request, here)
    if slots is None or _is_late(job, plan):
        # Slurm may have reasons against its node, such as a reservation to come: others first.
        slots = plan.first_with_room(request, _after(here, allowed)) or slots
    if slots is None:
        return _left(job, Why.GAVE_UP), None
    pin = plan.pins[slots[0].index]
    act = Act.KEEP if pin == job.pin else Act.PIN
    return Answer(job.job_id, act, Why.GAVE_UP, pin, _figures(slots[0])), slots


def _is_late(job: Waiting, plan: GpuPlan) -> bool:
    """Whether it has been pinned, or has waited at the gate, for long enough."""
    max_s = plan.snapshot.rules.max_pin_s
    return job.since_s is not None and plan.snapshot.at_s - job.since_s > max_s


def _after(here: Sequence[GpuSlot], allowed: Sequence[GpuSlot]) -> Sequence[GpuSlot]:
    """The other slots: those of other nodes first, each time the next ones."""
    if not here:
        return allowed
    node, at = here[0].node, here[0].index
    others = (slot for slot in allowed if slot.index != at)
    return sorted(others, key=lambda slot: (slot.node == node, slot.index < at))


def _place(
    job: Waiting, request: PlaceRequest, allowed: Sequence[GpuSlot], plan: GpuPlan
) -> tuple[Answer, Sequence[GpuSlot] | None]:
    rules, anybodys = plan.snapshot.rules, allowed
    allowed = plan.of_one_user(job, allowed)
    if anybodys and not allowed:
        return _left(job, Why.USERS), None
    unreserved = plan.unreserved(allowed)
    if unreserved is not allowed:
        allowed = unreserved
        if not allowed or plan.next(request, allowed) is None:
            return _reserved_for_others(job, request, allowed, plan), None
    if _is_late(job, plan):
        return _given_up(job, request, allowed, plan)
    if job.pin is not None:
        here = [slot for slot in allowed if plan.pins[slot.index] == job.pin]
        slots = plan.next(request, here) if here else None
        if slots is not None:
            return Answer(job.job_id, Act.KEEP, Why.POLICY, job.pin), slots
    if not allowed:
        return _left(job, _why_nowhere(job, plan)), None
    slots = plan.next(request, allowed)
    if slots is None:
        if plan.is_gated(request, allowed):
            why = Why.BOUND if plan.is_bound(request, allowed) else Why.GATE
            return Answer(job.job_id, Act.WAIT, why), None
        why = _why_no_slot(job, request, allowed, plan)
        if job.guarded(rules):
            # Slurm would start it on the next GPU that is idle, and nobody could share that one.
            return Answer(job.job_id, Act.WAIT, why), None
        return _left(job, why), None
    return _pinned(job, slots, plan), slots


def _pinned(job: Waiting, slots: Sequence[GpuSlot], plan: GpuPlan, why: Why = Why.POLICY) -> Answer:
    """The answer for a job that is to start on these slots."""
    pin = plan.pins[slots[0].index]
    if pin == job.pin:
        return Answer(job.job_id, Act.KEEP, why, pin)
    plan.turn = (slots[0].index + 1) % len(plan.slots)
    if job.pin is not None and why is Why.POLICY:
        why = Why.MOVED
    return Answer(job.job_id, Act.PIN, why, pin, _figures(slots[0]))


def _reserved_for_others(
    job: Waiting, request: PlaceRequest, allowed: Sequence[GpuSlot], plan: GpuPlan
) -> Answer:
    """The answer for a job whose only room is reserved for an earlier job. While that one waits,
    and for longer than max_pin_s if need be, it is pinned to a slot on which it may wait its turn,
    so that it stays in Slurm's order; without any it waits at the gate. A guarded one waits in that
    order for a whole GPU: nobody knows who will be on a GPU when its turn comes."""
    if job.guarded(plan.snapshot.rules):
        return _left(job, Why.WHOLE)
    pins = [plan.pins[slot.index] for slot in plan.turns(request, allowed)]
    if job.pin is not None and job.pin in pins:
        return Answer(job.job_id, Act.KEEP, Why.WHOLE, job.pin)
    if not pins:
        return Answer(job.job_id, Act.WAIT, Why.WHOLE)
    return Answer(
        job.job_id, Act.PIN, Why.WHOLE, pins[0], "it waits its turn there; others are reserved"
    )


def _why_no_slot(
    job: Waiting, request: PlaceRequest, allowed: Sequence[GpuSlot], plan: GpuPlan
) -> Why:
    """Why the policy has no slot for it."""
    if plan.has_room(request, allowed):
        return Why.BEHIND
    return Why.USERS if plan.is_others(request, allowed) else Why.NO_ROOM


def _why_nowhere(job: Waiting, plan: GpuPlan) -> Why:
    """Why none of its nodes will do."""
    there = [pin for pin in plan.pins if pin.node in job.nodes]
    return Why.STALE if any(plan.open(pin) for pin in there) else Why.CLOSED


def _figures(slot: GpuSlot) -> str:
    """The figures behind the choice, in words."""
    shown = slot.measured
    assert shown is not None  # a slot without telemetry is none for a job of ours
    beside = f"beside {len(slot.residents)}" if slot.residents else "idle"
    return f"{shown.free_mib / 1024:.1f} GiB free, SM activity {shown.smact:.0%}, {beside}"
