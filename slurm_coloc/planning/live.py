# SPDX-License-Identifier: Apache-2.0
"""Plans a real queue: from steering's snapshot to a plan that steering carries out.

It believes what is known of the jobs' times and activities. A job of which nothing is known takes
as long as the others in the mean, and keeps a GPU busy.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from slurm_coloc.core.place.gpu_slot import GpuSlot, PlaceRequest
from slurm_coloc.core.place.interference import FITTED, Learned, pairs_on
from slurm_coloc.core.place.placing import Conditions, Policy, View
from slurm_coloc.core.place.speeds import BUSY
from slurm_coloc.core.place.steering import Pin, Planned, Running, Snapshot, Waiting
from slurm_coloc.core.place.steering.gpus import GpuPlan, request_of
from slurm_coloc.core.records.pairs import PairSpeed
from slurm_coloc.planning.combos import Combos
from slurm_coloc.planning.parts import parts
from slurm_coloc.planning.schedules.native import NOT_BUILT, built
from slurm_coloc.planning.search import Search, Spots
from slurm_coloc.planning.shadow import Shadow
from slurm_coloc.planning.snapshot import could_hold, snapshot_of

#: the most GPUs of one search, and the most jobs times GPUs: it takes up to a second there; of a
#: larger cluster so many parts are planned at a time
GPUS, MOST, PARTS = 32, 2048, 5
#: seconds after which a plan is made anew although no job came, started or ended
STALE_S = 60.0
#: seconds after a job's end in which telemetry may show its memory still
LEAVES_S = 60.0


@dataclass(frozen=True, slots=True)
class _Candidates:
    """The jobs that could be on some of these slots, and those that each may get. ``leaving``:
    slots that a job has just left."""

    jobs: Sequence[Waiting]
    allowed: Mapping[int, Sequence[GpuSlot]]
    slots: Sequence[GpuSlot]
    leaving: Collection[int]


class Planner:
    """Plans the queue, look by look. ``tries``: variations that are tried at each.

    It remembers its last plan, what the model of interference answered, and when each job would
    have started without sharing. All of it may be lost at any time.
    """

    def __init__(self, policy: Policy, tries: int = 1600) -> None:
        """``policy``: places what no plan names."""
        self._policy, self._tries = policy, tries
        self._pairs: Sequence[PairSpeed] = ()
        self._combos = Combos(Learned())
        self._spots: Spots = {}
        self._moment: object = None
        self._at_s = float("-inf")
        self._plan: tuple[Planned, ...] = ()
        self._shadow = Shadow()
        self._there: dict[Pin, frozenset[int]] = {}  # the jobs of each GPU
        self._left_s: dict[Pin, float] = {}
        self._turn = 0

    def know(self, pairs: Sequence[PairSpeed]) -> None:
        """Use what was measured of pairs from the next plan on."""
        if pairs != self._pairs:
            cards = {pair.card for pair in pairs}
            on = {card: Learned(pairs_on(card, pairs)) for card in cards}
            self._pairs, self._combos = pairs, Combos(Learned(pairs_on("", pairs)), on)

    def planned(self, snapshot: Snapshot) -> tuple[Snapshot, str]:
        """The snapshot with a plan, and why it has none ("": it has one)."""
        if not built():
            return self._without(snapshot), f"its search {NOT_BUILT}"
        jobs = [job for job in snapshot.waiting if job.startable and not job.given_up]
        if not jobs:
            return self._without(snapshot), ""
        large = sum(len(node.devices) for node in snapshot.nodes) > GPUS
        those = None if large else self._candidates(snapshot, jobs)
        if those is not None:
            snapshot, jobs = self._with_dues(snapshot, those), list(those.jobs)
        moment = _moment(snapshot, jobs)
        if moment != self._moment or snapshot.at_s - self._at_s > STALE_S:
            self._moment, self._at_s = moment, snapshot.at_s
            if those is None:
                self._plan = self._by_parts(snapshot, jobs)
            else:
                self._plan = self._whole(snapshot, those)
        left = those.leaving if those else ()
        plan = (replace(one, left=not set(one.gpus).isdisjoint(left)) for one in self._plan)
        return replace(snapshot, plan=tuple(plan)), ""

    def _without(self, snapshot: Snapshot) -> Snapshot:
        self._plan, self._moment = (), None
        return snapshot

    def _candidates(self, snapshot: Snapshot, jobs: Sequence[Waiting]) -> _Candidates:
        plan = GpuPlan(_expected(snapshot), self._policy)
        leaving = self._leaving(snapshot, plan)
        allowed = {job.job_id: plan.allowed(job, leaving) for job in jobs}
        jobs = [job for job in jobs if could_hold(allowed[job.job_id], _request(job, snapshot))]
        return _Candidates(jobs, allowed, plan.slots, leaving)

    def _leaving(self, snapshot: Snapshot, plan: GpuPlan) -> set[int]:
        """The slots that a job has just left: telemetry may show its memory there still, which is
        no reason to plan without them."""
        found, at_s = set(), snapshot.at_s
        for number, (slot, pin) in enumerate(zip(plan.slots, plan.pins, strict=True)):
            ids = frozenset(one.request.id for one in slot.residents)
            if self._there.get(pin, ids) - ids:
                self._left_s[pin] = at_s
            self._there[pin] = ids
            if at_s - self._left_s.get(pin, -math.inf) < LEAVES_S:
                found.add(number)
        return found

    def _whole(self, snapshot: Snapshot, those: _Candidates) -> tuple[Planned, ...]:
        """The plan of all GPUs."""
        self._spots, now = self._search(snapshot, those, self._spots)
        return tuple(
            Planned(job_id, now.get(job_id, spot.slots), job_id in now)
            for job_id, spot in self._spots.items()
        )

    def _by_parts(self, snapshot: Snapshot, jobs: Sequence[Waiting]) -> tuple[Planned, ...]:
        """What starts now on the GPUs that have room; of who starts later it says nothing, for that
        one may start elsewhere."""
        found: dict[int, Planned] = {}
        for part in parts(snapshot, jobs, GPUS, PARTS, self._turn):
            others = (job for job in jobs if job.job_id not in found and part.may_get(job))
            those = self._candidates(part.snapshot, list(islice(others, MOST // GPUS)))
            _, now = self._search(part.snapshot, those, {})
            for job_id, slots in now.items():
                found[job_id] = Planned(job_id, tuple(part.gpus[slot] for slot in slots), True)
            last = part.snapshot.nodes[-1]
            self._turn = snapshot.nodes.index(last) + 1
        return tuple(found.values())

    def _search(
        self, snapshot: Snapshot, those: _Candidates, last: Spots
    ) -> tuple[Spots, dict[int, tuple[int, ...]]]:
        """The spots of the first jobs, and the GPUs of those that start now. ``last``: the spots of
        the plan before."""
        slots, rules = those.slots, snapshot.rules
        jobs = those.jobs[: MOST // max(1, len(slots))]
        if not jobs:
            return {}, {}
        requests = [_request(job, snapshot) for job in jobs]
        conditions = Conditions(jobs=rules.max_jobs, share_with=rules.share_with)
        view = View(snapshot.at_s, requests, slots, conditions, FITTED)
        every = frozenset(range(len(slots)))
        barred = [every - {slot.index for slot in those.allowed[job.job_id]} for job in jobs]
        numbers = snapshot_of(view, requests, self._combos, barred)
        if len(snapshot.nodes) == 1:
            numbers.after[: len(jobs)] = _behind(jobs, rules.reorder)
        ids = [request.id for request in requests]
        ids += dict.fromkeys(one.request.id for slot in slots for one in slot.residents)
        seed = round(snapshot.at_s * 1000.0) * 1009 + len(jobs)
        search = Search(numbers, ids, len(requests), seed)
        spots = search.best(last, self._tries)
        return spots, dict(search.first())

    def _with_dues(self, snapshot: Snapshot, those: _Candidates) -> Snapshot:
        """Each waiting job with the time at which it would start if nobody shared."""
        first = those.jobs[: MOST // max(1, len(those.slots))]
        due_s = self._shadow.starts(snapshot.at_s, first, those.slots)
        waiting = [replace(job, due_s=due_s.get(job.job_id)) for job in snapshot.waiting]
        return replace(snapshot, waiting=tuple(waiting))


def _expected(snapshot: Snapshot) -> Snapshot:
    """With the ends that are expected in place of those of the time limits, but none beyond its
    limit: a log may claim anything, and others' waits hang on it."""
    at_s = snapshot.at_s
    return replace(snapshot, running=tuple(_ends(one, at_s) for one in snapshot.running))


def _ends(one: Running, at_s: float) -> Running:
    if one.left_s is None:
        return replace(one, ends_s=None)
    ends_s = at_s + one.left_s
    if one.ends_s is not None:
        ends_s = min(ends_s, one.ends_s)
    return replace(one, ends_s=ends_s, left_s=max(1.0, ends_s - at_s))


def _request(job: Waiting, snapshot: Snapshot) -> PlaceRequest:
    found = request_of(job, snapshot.rules.shard_mib)
    activity = found.activity
    if activity is None and job.training:
        activity = replace(BUSY, fingerprint=job.training)
    return replace(found, run_s=job.expected_s, run_spread=job.spread, activity=activity)


def _behind(jobs: Sequence[Waiting], reorder: bool) -> list[int]:
    """For each job the one behind which Slurm keeps it, -1: none. On one node backfill lets nobody
    pass a job that waits, unless that is held for the plan's sake, as only ours can be."""
    found, last = [], -1
    for number, job in enumerate(jobs):
        found.append(last)
        if not ((job.ours or job.holdable) and reorder):
            last = number
    return found


def _moment(snapshot: Snapshot, jobs: Sequence[Waiting]) -> object:
    """What a plan hangs on besides the times: who waits for what, and who runs where."""
    waits = tuple((job.job_id, job.gpus, job.shards, job.nodes) for job in jobs)
    runs = tuple((one.job_id, one.node, one.devices) for one in snapshot.running)
    nodes = tuple((node.name, node.open, len(node.devices)) for node in snapshot.nodes)
    return waits, runs, nodes
