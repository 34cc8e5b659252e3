# SPDX-License-Identifier: Apache-2.0
"""When each job would start if nobody shared: the bound of what a plan may let it wait.

It is a cluster beside the real one, from the first look on: its jobs have whole GPUs, start in
Slurm's order and take as long as is expected of them. What is learned of their times moves all
starts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from slurm_coloc.core.place.gpu_slot import GpuSlot, PlaceRequest
from slurm_coloc.core.place.steering import Waiting
from slurm_coloc.planning.snapshot import PRIOR_S

#: jobs that are kept: those that began after one that takes weeks stay as long as that one
MOST = 1000


@dataclass(slots=True)
class _Shade:
    """A job there. ``waits``: whether it waits in the real cluster; ``run_s``: None: not known;
    ``start_s``, ``places``: when it starts (Unix seconds) and on which GPUs."""

    gpus: int
    seen_s: float
    waits: bool
    run_s: float | None
    start_s: float = 0.0
    places: tuple[int, ...] = ()


class Shadow:
    """Looks at the real cluster again and again. It may be lost at any time: it begins anew with
    what runs then."""

    def __init__(self) -> None:
        self._free_s: list[float] = []
        self._last_s = float("-inf")
        self._before: set[int] = set()  # jobs that ran when it began
        self._jobs: dict[int, _Shade] = {}

    def starts(
        self, at_s: float, jobs: Sequence[Waiting], slots: Sequence[GpuSlot]
    ) -> dict[int, float]:
        """When each of these waiting jobs, in Slurm's order, would start without sharing (Unix
        seconds)."""
        there = {one.request.id: one.request for slot in slots for one in slot.residents}
        if len(slots) != len(self._free_s):
            self._begin(at_s, slots)
            self._before = set(there)
        self._before &= set(there)
        waiting = {job.job_id: job for job in jobs}
        for job_id, shade in list(self._jobs.items()):
            self._update(job_id, shade, waiting, there)
        for job_id, request in there.items():
            if job_id > 0 and job_id not in self._jobs and job_id not in self._before:
                self._jobs[job_id] = _Shade(request.gpus, at_s, False, request.run_s)
        self._add(at_s, jobs)
        self._play(at_s)
        return {job_id: self._jobs[job_id].start_s for job_id in waiting}

    def _begin(self, at_s: float, slots: Sequence[GpuSlot]) -> None:
        self._free_s = [
            max(
                (at_s + PRIOR_S if one.ends_s is None else one.ends_s for one in slot.residents),
                default=at_s,
            )
            for slot in slots
        ]
        self._jobs, self._last_s = {}, float("-inf")

    def _update(
        self,
        job_id: int,
        shade: _Shade,
        waiting: Mapping[int, Waiting],
        there: Mapping[int, PlaceRequest],
    ) -> None:
        if (job := waiting.get(job_id)) is not None:
            shade.run_s = shade.run_s if job.expected_s is None else job.expected_s
        elif (request := there.get(job_id)) is not None:
            shade.waits = False
            shade.run_s = request.run_s if shade.run_s is None else shade.run_s
        elif shade.waits:  # it left the queue without a run
            del self._jobs[job_id]

    def _add(self, at_s: float, jobs: Sequence[Waiting]) -> None:
        """Add the jobs that are new, each before those behind it that would not have started."""
        order = list(self._jobs)
        place = len(order)
        for job in reversed(jobs):
            shade = self._jobs.get(job.job_id)
            if shade is None:
                self._jobs[job.job_id] = _Shade(max(1, job.gpus), at_s, True, job.expected_s)
                order.insert(place, job.job_id)
            elif shade.start_s > at_s:
                place = min(place, order.index(job.job_id))
        self._jobs = {job_id: self._jobs[job_id] for job_id in order}

    def _play(self, at_s: float) -> None:
        """Start all in their order; forget the first ones that have ended, and of too many the
        first ones that no longer wait: what is learned of their times later moves nothing."""
        known = [shade.run_s for shade in self._jobs.values() if shade.run_s is not None]
        prior_s = fmean(known) if known else PRIOR_S
        free_s, last_s = self._free_s[:], self._last_s
        for shade in self._jobs.values():
            places = sorted(range(len(free_s)), key=free_s.__getitem__)[: shade.gpus]
            # nobody passes in strict order
            last_s = max(last_s, shade.seen_s, *(free_s[place] for place in places))
            shade.start_s, shade.places = last_s, tuple(places)
            for place in places:
                free_s[place] = last_s + (prior_s if shade.run_s is None else shade.run_s)
        for job_id, shade in list(self._jobs.items()):
            end_s = shade.start_s + (prior_s if shade.run_s is None else shade.run_s)
            if shade.waits or (end_s > at_s and len(self._jobs) <= MOST):
                return
            del self._jobs[job_id]
            self._before.add(job_id)
            self._last_s = shade.start_s
            for place in shade.places:
                self._free_s[place] = end_s
