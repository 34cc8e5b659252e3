# SPDX-License-Identifier: Apache-2.0
"""From what a policy sees to the numbers that a rollout plays with."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from slurm_coloc.core.place.gpu_slot import GpuSlot, PlaceRequest, Resident
from slurm_coloc.core.place.placing import Conditions, View
from slurm_coloc.core.place.speeds import BUSY
from slurm_coloc.planning.combos import Combos, Way

#: seconds alone of a job of which nothing is known while nothing is known of any other either:
#: an hour, of the size of the thesis' trainings (a mean of 2,100 s on 60 jobs)
PRIOR_S = 3600.0
#: spread (standard deviation of the logarithm) of such a job's time
UNKNOWN = 0.6
#: the slots that a job may not get
NOWHERE: frozenset[int] = frozenset()
#: a job that outlived what was expected is taken to need this part of that again
AGAIN = 0.1


@dataclass(slots=True)
class PlanSnapshot:
    """The jobs and slots of one moment, in numbers; a job is an index into the lists of jobs.

    ``left``: seconds alone to go; ``spread``: standard deviation of its logarithm. ``lone``: starts
    on an idle slot only. ``due``: seconds from now by which it should start. ``group``: of those
    who may share. ``barred``: slots that it may not get. ``after``: the job that starts before it,
    -1: none. ``bound``: most slowdown. ``free``: MiB that can be reserved, -1 where no job may
    join. ``way``: how its jobs share each slot. ``on``: jobs of each slot.
    """

    combos: Combos
    most: int
    budget: float | None
    bounded: bool
    gpus: list[int] = field(default_factory=list)
    need: list[int] = field(default_factory=list)
    kind: list[int] = field(default_factory=list)
    smact: list[float] = field(default_factory=list)
    left: list[float] = field(default_factory=list)
    spread: list[float] = field(default_factory=list)
    share: list[bool] = field(default_factory=list)
    lone: list[bool] = field(default_factory=list)
    group: list[int] = field(default_factory=list)
    barred: list[frozenset[int]] = field(default_factory=list)
    after: list[int] = field(default_factory=list)
    bound: list[float] = field(default_factory=list)
    due: list[float] = field(default_factory=list)
    slots_of: list[tuple[int, ...]] = field(default_factory=list)
    usable: list[int] = field(default_factory=list)
    free: list[int] = field(default_factory=list)
    pool: list[bool] = field(default_factory=list)
    for_whole: list[bool] = field(default_factory=list)
    node: list[int] = field(default_factory=list)
    nodes: dict[int, int] = field(default_factory=dict)
    way: list[Way] = field(default_factory=list)
    on: list[list[int]] = field(default_factory=list)


def snapshot_of(
    view: View,
    requests: Sequence[PlaceRequest],
    combos: Combos,
    barred: Sequence[frozenset[int]] = (),
) -> PlanSnapshot:
    """The moment: waiting jobs first, numbered as in ``requests``, then those that run. ``barred``:
    of each waiting job; none where it is empty."""
    rules = view.conditions
    snapshot = PlanSnapshot(combos, rules.jobs, rules.budget, _bounded(view, requests))
    prior_s = _prior(view, requests)
    least_mib = min((slot.usable_mib for slot in view.slots), default=0)
    groups: dict[str, int] = {}
    for request in requests:
        _job(
            snapshot,
            request,
            request.run_s if request.run_s is not None else prior_s,
            rules,
            groups,
            least_mib,
        )
    known: dict[int, int] = {}
    places: dict[int, list[int]] = {}
    for slot in view.slots:
        jobs = []
        for one in slot.residents:
            job = known.get(one.request.id)
            if job is None:
                job = known[one.request.id] = len(snapshot.left)
                _job(snapshot, one.request, _left(one, prior_s), rules, groups, least_mib)
            jobs.append(job)
            places.setdefault(job, []).append(len(snapshot.on))
        _slot(snapshot, slot, jobs)
    for job, slots in places.items():
        snapshot.slots_of[job] = tuple(slots)
    _elapse(view, snapshot, known)
    snapshot.barred[: len(barred)] = barred
    return snapshot


def could_hold(slots: Sequence[GpuSlot], request: PlaceRequest) -> bool:
    """Whether a job could be there at all: one that could not waits, and is in no plan."""
    need = request.need_mib or 0
    open_to = [slot for slot in slots if (slot.pool if request.share else slot.for_whole)]
    return sum(need <= slot.usable_mib or not request.share for slot in open_to) >= request.gpus


def _elapse(view: View, snapshot: PlanSnapshot, known: dict[int, int]) -> None:
    """What is left of the jobs that run, as of now: their expected ends at today's speeds."""
    speeds: dict[int, float] = {}
    for index, jobs in enumerate(snapshot.on):
        kinds = tuple(sorted(snapshot.kind[job] for job in jobs))
        table = snapshot.combos.of(snapshot.way[index], kinds)[1]
        for job in jobs:
            speeds[job] = min(speeds.get(job, 1.0), table[snapshot.kind[job]])
    for slot in view.slots:
        for one in slot.residents:
            if one.ends_s is not None:
                job = known[one.request.id]
                left_s = (one.ends_s - view.now_s) * speeds[job]
                snapshot.left[job] = max(1.0, left_s if left_s > 0.0 else _again(one))


def _prior(view: View, requests: Sequence[PlaceRequest]) -> float:
    known = [request.run_s for request in requests if request.run_s is not None]
    known += [
        one.request.run_s
        for slot in view.slots
        for one in slot.residents
        if one.request.run_s is not None
    ]
    return fmean(known) if known else PRIOR_S


def _left(one: Resident, prior_s: float) -> float:
    if one.left_s is None:
        return prior_s
    return max(1.0, one.left_s if one.left_s > 0.0 else _again(one))


def _again(one: Resident) -> float:
    """Seconds that are left of a job that outlived what was expected of it."""
    return AGAIN * (one.request.run_s or 0.0)


def _bounded(view: View, requests: Sequence[PlaceRequest]) -> bool:
    if view.conditions.max_slowdown is not None:
        return True
    running = (one.request for slot in view.slots for one in slot.residents)
    return any(request.max_slowdown is not None for request in (*requests, *running))


def _job(
    snapshot: PlanSnapshot,
    request: PlaceRequest,
    left_s: float,
    rules: Conditions,
    groups: dict[str, int],
    least_mib: int,
) -> None:
    activity = request.activity or BUSY
    whose = {"user": request.user, "account": request.account}.get(rules.share_with, "")
    highest = float("inf") if rules.max_slowdown is None else rules.max_slowdown
    snapshot.gpus.append(request.gpus)
    snapshot.need.append(_need(request, rules, least_mib))
    snapshot.kind.append(snapshot.combos.kind(activity))
    snapshot.smact.append(activity.smact)
    snapshot.left.append(max(left_s, 1.0))
    snapshot.spread.append(UNKNOWN if request.run_s is None else request.run_spread)
    snapshot.share.append(request.share)
    snapshot.group.append(groups.setdefault(whose, len(groups)))
    snapshot.bound.append(
        highest if request.max_slowdown is None else min(highest, request.max_slowdown)
    )
    snapshot.due.append(float("inf") if request.share else 0.0)
    snapshot.lone.append(request.idle_only)
    snapshot.barred.append(NOWHERE)
    snapshot.after.append(-1)
    snapshot.slots_of.append(())


def _need(request: PlaceRequest, rules: Conditions, least_mib: int) -> int:
    """MiB; a job without an estimate takes all of a GPU, by the smallest of them."""
    if not request.share:
        return 0
    if request.need_mib is None:
        return least_mib if rules.by_plan else 0
    return request.need_mib


def _slot(snapshot: PlanSnapshot, slot: GpuSlot, jobs: list[int]) -> None:
    closed = slot.whole or (bool(jobs) and not slot.pool)
    snapshot.usable.append(slot.usable_mib)
    snapshot.free.append(-1 if closed else slot.usable_mib - slot.reserved_mib)
    snapshot.pool.append(slot.pool)
    snapshot.for_whole.append(slot.for_whole)
    snapshot.node.append(slot.node)
    snapshot.nodes[slot.node] = snapshot.nodes.get(slot.node, 0) + 1
    snapshot.way.append(Way(slot.method, slot.fraction, slot.card))
    snapshot.on.append(jobs)
