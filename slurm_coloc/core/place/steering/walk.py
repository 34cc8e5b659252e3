# SPDX-License-Identifier: Apache-2.0
"""The walk through the queue: an answer for each waiting job."""

from collections.abc import Sequence

from slurm_coloc.core.place.gpu_slot import GpuSlot, PlaceRequest
from slurm_coloc.core.place.placing import Policy
from slurm_coloc.core.place.steering.gpus import GpuPlan, ask_of
from slurm_coloc.core.place.steering.snapshot import Act, Answer, Snapshot, Waiting, Why


def steer(snapshot: Snapshot, policy: Policy) -> tuple[tuple[Answer, ...], int]:
    """An answer for each waiting job of ours, in Slurm's order, and the ring's next turn."""
    scene = GpuPlan(snapshot, policy)
    found, placed = [], 0
    for job in snapshot.waiting:
        if not job.startable:
            if job.ours:
                found.append(_untouched(job, scene))
            continue
        if job.ours and placed >= snapshot.rules.ahead:
            found.append(_left(job, Why.ENOUGH))
            continue
        ask = ask_of(job, snapshot.rules.shard_mib)
        allowed = scene.allowed(job)
        if not job.ours or job.given_up:
            if job.ours:
                found.append(_left(job, Why.GAVE_UP))
            _expect(scene, ask, scene.next(ask, allowed), job, allowed)
            continue
        placed += 1
        answer, seats = _place(job, ask, allowed, scene)
        found.append(answer)
        _expect(scene, ask, seats, job, allowed)
    return tuple(found), scene.turn


def _expect(
    scene: GpuPlan,
    ask: PlaceRequest,
    seats: Sequence[GpuSlot] | None,
    job: Waiting,
    allowed: Sequence[GpuSlot],
) -> None:
    if seats is None:
        scene.blocked(ask, allowed)
    else:
        scene.start(ask, seats, job.run_s)


def _untouched(job: Waiting, scene: GpuPlan) -> Answer:
    """A job that Slurm would not start now: it keeps its pin while that is sound."""
    if job.pin is None:
        return Answer(job.job_id, Act.NATIVE, Why.NOT_YET)
    if not scene.open(job.pin):
        return _left(job, Why.CLOSED)
    if not scene.fresh(job.pin):
        return _left(job, Why.STALE)
    return Answer(job.job_id, Act.KEEP, Why.NOT_YET, job.pin)


def _left(job: Waiting, why: Why) -> Answer:
    """Left to Slurm."""
    return Answer(job.job_id, Act.NATIVE if job.pin is None else Act.UNPIN, why)


def _place(
    job: Waiting, ask: PlaceRequest, allowed: Sequence[GpuSlot], scene: GpuPlan
) -> tuple[Answer, Sequence[GpuSlot] | None]:
    rules, now_s = scene.snapshot.rules, scene.snapshot.at_s
    kept = scene.kept(allowed)
    if kept:
        allowed = [seat for seat in allowed if seat not in kept]
        if not allowed or scene.next(ask, allowed) is None:
            return _kept_off(job, scene.turns(ask, allowed), scene), None
    if job.since_s is not None and now_s - job.since_s > rules.max_pin_s:
        return _left(job, Why.GAVE_UP), scene.next(ask, allowed)
    if job.pin is not None:
        here = [seat for seat in allowed if scene.pins[seat.index] == job.pin]
        seats = scene.next(ask, here) if here else None
        if seats is not None:
            return Answer(job.job_id, Act.KEEP, Why.POLICY, job.pin), seats
    if not allowed:
        return _left(job, _why_nowhere(job, scene)), None
    seats = scene.next(ask, allowed)
    if seats is None:
        if scene.is_gated(ask, allowed):
            why = Why.BOUND if scene.is_bound(ask, allowed) else Why.GATE
            return Answer(job.job_id, Act.WAIT, why), None
        room = scene.has_room(ask, allowed)
        return _left(job, Why.BEHIND if room else Why.NO_ROOM), None
    pin = scene.pins[seats[0].index]
    scene.turn = (seats[0].index + 1) % len(scene.seats)
    why = Why.POLICY if job.pin is None else Why.MOVED
    return Answer(job.job_id, Act.PIN, why, pin, _told(seats[0])), seats


def _kept_off(job: Waiting, turns: Sequence[GpuSlot], scene: GpuPlan) -> Answer:
    """A job that has no room but where it would keep one before it waiting. As long as that one
    waits, and not bound by max_pin_s, it is pinned to a GPU of the others, so that it stays in
    Slurm's order; only where there is none it is not eligible for some seconds."""
    pins = [scene.pins[seat.index] for seat in turns]
    if job.pin is not None and job.pin in pins:
        return Answer(job.job_id, Act.KEEP, Why.WHOLE, job.pin)
    if not pins:
        return Answer(job.job_id, Act.WAIT, Why.WHOLE)
    return Answer(job.job_id, Act.PIN, Why.WHOLE, pins[0], "its turn is there; others are kept")


def _why_nowhere(job: Waiting, scene: GpuPlan) -> Why:
    """Why none of its nodes will do."""
    there = [pin for pin in scene.pins if pin.node in job.nodes]
    return Why.STALE if any(scene.open(pin) for pin in there) else Why.CLOSED


def _told(seat: GpuSlot) -> str:
    """What the choice was made on, in words."""
    shown = seat.measured
    assert shown is not None  # a seat without telemetry is none for a job of ours
    beside = f"beside {len(seat.residents)}" if seat.residents else "idle"
    return f"{shown.free_mib / 1024:.1f} GiB free, SM activity {shown.smact:.0%}, {beside}"
