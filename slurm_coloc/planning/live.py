# SPDX-License-Identifier: Apache-2.0
"""Plans a real queue: from steering's snapshot to a plan that steering carries out.

It believes what is known of the jobs' times and activities. A job of which nothing is known takes
as long as the others in the mean, and keeps a GPU busy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from slurm_coloc.core.place.gpu_slot import GpuSlot, PlaceRequest
from slurm_coloc.core.place.interference import FITTED, Learned, Pair, Whose
from slurm_coloc.core.place.placing import Conditions, Policy, View
from slurm_coloc.core.place.speeds import BUSY
from slurm_coloc.core.place.steering import Planned, Running, Snapshot, Waiting
from slurm_coloc.core.place.steering.gpus import GpuPlan, request_of
from slurm_coloc.planning.combos import Combos
from slurm_coloc.planning.schedules.anneal import BOTH
from slurm_coloc.planning.schedules.native import NOT_BUILT, built
from slurm_coloc.planning.search import Search, Spots
from slurm_coloc.planning.snapshot import PRIOR_S, could_hold, snapshot_of

#: GPUs beyond which nothing is planned, and the most jobs times GPUs of a plan: a search takes up
#: to a second there
GPUS, MOST = 32, 2048
#: seconds after which a plan is made anew although no job came, started or ended
STALE_S = 60.0


class Planner:
    """Plans the queue, look by look. ``tries``: variations that are tried at each.

    It remembers its last plan, what the model of interference answered, and when each job would
    have started without sharing. All of it may be lost at any time.
    """

    def __init__(self, policy: Policy, tries: int = 1600) -> None:
        """``policy``: places what no plan names."""
        self._policy, self._tries = policy, tries
        self._pairs: Mapping[Whose, Pair] = {}
        self._combos = Combos(Learned())
        self._spots: Spots = {}
        self._moment: object = None
        self._at_s = float("-inf")
        self._plan: tuple[Planned, ...] = ()
        self._due_s: dict[int, float] = {}

    def know(self, pairs: Mapping[Whose, Pair]) -> None:
        """Use what was measured of pairs from the next plan on."""
        if pairs != self._pairs:
            self._pairs, self._combos = pairs, Combos(Learned(pairs))

    def planned(self, snapshot: Snapshot) -> tuple[Snapshot, str]:
        """The snapshot with a plan, and why it has none ("": it has one)."""
        jobs = [job for job in snapshot.waiting if job.startable and not job.given_up]
        gpus = sum(len(node.devices) for node in snapshot.nodes)
        why = _too_much(gpus)
        if why or not jobs:
            self._plan, self._moment = (), None
            return snapshot, why
        plan = GpuPlan(_expected(snapshot), self._policy)
        allowed = {job.job_id: plan.allowed(job) for job in jobs}
        jobs = [job for job in jobs if could_hold(allowed[job.job_id], _request(job, snapshot))]
        snapshot = self._with_dues(snapshot, jobs, plan.slots)
        moment = _moment(snapshot, jobs)
        if moment != self._moment or snapshot.at_s - self._at_s > STALE_S:
            self._moment, self._at_s = moment, snapshot.at_s
            self._search(snapshot, jobs[: MOST // max(1, gpus)], plan.slots, allowed)
        return replace(snapshot, plan=self._plan), ""

    def _search(
        self,
        snapshot: Snapshot,
        jobs: Sequence[Waiting],
        slots: Sequence[GpuSlot],
        allowed: Mapping[int, Sequence[GpuSlot]],
    ) -> None:
        if not jobs:
            self._plan = ()
            return
        rules = snapshot.rules
        requests = [_request(job, snapshot) for job in jobs]
        conditions = Conditions(jobs=rules.max_jobs, share_with=rules.share_with)
        view = View(snapshot.at_s, requests, slots, conditions, FITTED)
        every = frozenset(range(len(slots)))
        barred = [every - {slot.index for slot in allowed[job.job_id]} for job in jobs]
        numbers = snapshot_of(view, requests, self._combos, barred)
        if len(snapshot.nodes) == 1:
            numbers.after[: len(jobs)] = _behind(jobs, rules.reorder)
        ids = [request.id for request in requests]
        ids += dict.fromkeys(one.request.id for slot in slots for one in slot.residents)
        seed = round(snapshot.at_s * 1000.0) * 1009 + len(jobs)
        search = Search(numbers, ids, len(requests), seed, BOTH)
        self._spots = search.best(self._spots, self._tries)
        now = dict(search.first())
        self._plan = tuple(
            Planned(job_id, now.get(job_id, spot.slots), job_id in now)
            for job_id, spot in self._spots.items()
        )

    def _with_dues(
        self, snapshot: Snapshot, jobs: Sequence[Waiting], slots: Sequence[GpuSlot]
    ) -> Snapshot:
        """Each waiting job with the time at which it would start if nobody shared from now on, as
        it was first seen."""
        known = {job.job_id: self._due_s.get(job.job_id) for job in jobs}
        if None in known.values():
            found = alone(snapshot, jobs, slots)
            known = {one: found[one] if due is None else due for one, due in known.items()}
        self._due_s = {one: due for one, due in known.items() if due is not None}
        waiting = [replace(job, due_s=self._due_s.get(job.job_id)) for job in snapshot.waiting]
        return replace(snapshot, waiting=tuple(waiting))


def alone(
    snapshot: Snapshot, jobs: Sequence[Waiting], slots: Sequence[GpuSlot]
) -> dict[int, float]:
    """When each job would start (Unix seconds) if all that wait got whole GPUs, in their order."""
    at_s = snapshot.at_s
    free_s = [_free_s(slot, at_s) for slot in slots]
    found, last_s = {}, at_s
    for job in jobs:
        places = sorted(range(len(free_s)), key=free_s.__getitem__)[: job.gpus]
        last_s = max(last_s, *(free_s[place] for place in places))  # nobody passes in strict order
        found[job.job_id] = last_s
        for place in places:
            free_s[place] = last_s + (PRIOR_S if job.expected_s is None else job.expected_s)
    return found


def _free_s(slot: GpuSlot, at_s: float) -> float:
    ends = (at_s + PRIOR_S if one.ends_s is None else one.ends_s for one in slot.residents)
    return max(ends, default=at_s)


def _too_much(gpus: int) -> str:
    if gpus > GPUS:
        return f"{gpus} GPUs are too many to plan for (at most {GPUS})"
    return "" if built() else f"its search {NOT_BUILT}"


def _expected(snapshot: Snapshot) -> Snapshot:
    """With the ends that are expected in place of those of the time limits, but none beyond its
    limit: a log may claim anything, and others' waits hang on it."""
    at_s = snapshot.at_s
    return replace(snapshot, running=tuple(_ends(one, at_s) for one in snapshot.running))


def _ends(one: Running, at_s: float) -> Running:
    if one.left_s is None:
        return replace(one, ends_s=None)
    ends_s = at_s + one.left_s
    return replace(one, ends_s=ends_s if one.ends_s is None else min(ends_s, one.ends_s))


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
