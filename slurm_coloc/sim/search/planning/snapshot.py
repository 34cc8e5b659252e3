# SPDX-License-Identifier: Apache-2.0
"""From what a policy sees to the numbers that a rollout plays with."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from slurm_coloc.core.place.placing import BUSY, Conditions, GpuSlot, PlaceRequest, Resident, View
from slurm_coloc.sim.search.planning.combos import Combos

#: seconds alone of a job of which nothing is known while nothing is known of any other either:
#: an hour, of the size of the thesis' trainings (a mean of 2,100 s on 60 jobs)
PRIOR_S = 3600.0
#: spread (standard deviation of the logarithm) of such a job's time
UNKNOWN = 0.6
#: a job that outlived what was expected is taken to need this part of that again
AGAIN = 0.1


@dataclass(slots=True)
class PlanSnapshot:
    """The jobs and seats of one moment, in numbers; a job is an index into the lists of jobs.

    ``left``: seconds alone to go; ``spread``: standard deviation of its logarithm. ``lone``: starts
    on an idle seat only. ``due``: seconds from now by which it should start. ``group``: of those
    who may share. ``bound``: most slowdown. ``free``: MiB that can be reserved, -1 where nobody may
    join. ``on``: jobs of each seat.
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
    bound: list[float] = field(default_factory=list)
    due: list[float] = field(default_factory=list)
    seats_of: list[tuple[int, ...]] = field(default_factory=list)
    usable: list[int] = field(default_factory=list)
    free: list[int] = field(default_factory=list)
    pool: list[bool] = field(default_factory=list)
    for_whole: list[bool] = field(default_factory=list)
    node: list[int] = field(default_factory=list)
    nodes: dict[int, int] = field(default_factory=dict)
    method: list[str] = field(default_factory=list)
    fraction: list[float] = field(default_factory=list)
    on: list[list[int]] = field(default_factory=list)


def scene_of(view: View, asks: Sequence[PlaceRequest], combos: Combos) -> PlanSnapshot:
    """The moment: waiting jobs first, numbered as in ``asks``, then those that run."""
    rules = view.conditions
    scene = PlanSnapshot(combos, rules.jobs, rules.budget, _bounded(view, asks))
    prior_s = _prior(view, asks)
    least_mib = min((seat.usable_mib for seat in view.seats), default=0)
    groups: dict[str, int] = {}
    for ask in asks:
        _job(scene, ask, ask.run_s if ask.run_s is not None else prior_s, rules, groups, least_mib)
    known: dict[int, int] = {}
    places: dict[int, list[int]] = {}
    for seat in view.seats:
        jobs = []
        for one in seat.residents:
            job = known.get(one.ask.id)
            if job is None:
                job = known[one.ask.id] = len(scene.left)
                _job(scene, one.ask, _left(one, prior_s), rules, groups, least_mib)
            jobs.append(job)
            places.setdefault(job, []).append(len(scene.on))
        _seat(scene, seat, jobs)
    for job, seats in places.items():
        scene.seats_of[job] = tuple(seats)
    _elapse(view, scene, known)
    return scene


def _elapse(view: View, scene: PlanSnapshot, known: dict[int, int]) -> None:
    """What is left of the jobs that run, as of now: their expected ends at today's speeds."""
    speeds: dict[int, float] = {}
    for seat, jobs in enumerate(scene.on):
        kinds = tuple(sorted(scene.kind[job] for job in jobs))
        table = scene.combos.of(scene.method[seat], scene.fraction[seat], kinds)[1]
        for job in jobs:
            speeds[job] = min(speeds.get(job, 1.0), table[scene.kind[job]])
    for seat_seen in view.seats:
        for one in seat_seen.residents:
            if one.ends_s is not None:
                job = known[one.ask.id]
                left_s = (one.ends_s - view.now_s) * speeds[job]
                scene.left[job] = max(1.0, left_s if left_s > 0.0 else _again(one))


def _prior(view: View, asks: Sequence[PlaceRequest]) -> float:
    known = [ask.run_s for ask in asks if ask.run_s is not None]
    known += [
        one.ask.run_s for seat in view.seats for one in seat.residents if one.ask.run_s is not None
    ]
    return fmean(known) if known else PRIOR_S


def _left(one: Resident, prior_s: float) -> float:
    if one.left_s is None:
        return prior_s
    return max(1.0, one.left_s if one.left_s > 0.0 else _again(one))


def _again(one: Resident) -> float:
    """Seconds that are left of a job that outlived what was expected of it."""
    return AGAIN * (one.ask.run_s or 0.0)


def _bounded(view: View, asks: Sequence[PlaceRequest]) -> bool:
    if view.conditions.max_slowdown is not None:
        return True
    running = (one.ask for seat in view.seats for one in seat.residents)
    return any(ask.max_slowdown is not None for ask in (*asks, *running))


def _job(
    scene: PlanSnapshot,
    ask: PlaceRequest,
    left_s: float,
    rules: Conditions,
    groups: dict[str, int],
    least_mib: int,
) -> None:
    activity = ask.activity or BUSY
    whose = {"user": ask.user, "account": ask.account}.get(rules.share_with, "")
    highest = float("inf") if rules.max_slowdown is None else rules.max_slowdown
    scene.gpus.append(ask.gpus)
    scene.need.append(_need(ask, rules, least_mib))
    scene.kind.append(scene.combos.kind(activity))
    scene.smact.append(activity.smact)
    scene.left.append(max(left_s, 1.0))
    scene.spread.append(UNKNOWN if ask.run_s is None else ask.run_spread)
    scene.share.append(ask.share)
    scene.group.append(groups.setdefault(whose, len(groups)))
    scene.bound.append(highest if ask.max_slowdown is None else min(highest, ask.max_slowdown))
    scene.due.append(float("inf") if ask.share else 0.0)
    scene.lone.append(ask.idle_only)
    scene.seats_of.append(())


def _need(ask: PlaceRequest, rules: Conditions, least_mib: int) -> int:
    """MiB; a job without an estimate takes all of a GPU, by the smallest of them."""
    if not ask.share:
        return 0
    if ask.need_mib is None:
        return least_mib if rules.by_plan else 0
    return ask.need_mib


def _seat(scene: PlanSnapshot, seat: GpuSlot, jobs: list[int]) -> None:
    closed = seat.whole or (bool(jobs) and not seat.pool)
    scene.usable.append(seat.usable_mib)
    scene.free.append(-1 if closed else seat.usable_mib - seat.reserved_mib)
    scene.pool.append(seat.pool)
    scene.for_whole.append(seat.for_whole)
    scene.node.append(seat.node)
    scene.nodes[seat.node] = scene.nodes.get(seat.node, 0) + 1
    scene.method.append(seat.method)
    scene.fraction.append(seat.fraction)
    scene.on.append(jobs)
