# SPDX-License-Identifier: Apache-2.0
"""Carries out a plan of the whole queue: where a job goes, and which of equal jobs goes first.

A plan is a prediction. So each start is checked against what is so now, a job waits for it only
behind equal jobs, and never beyond the time at which it would have started without sharing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from slurm_coloc.core.place.gpu_slot import GpuSlot
from slurm_coloc.core.place.steering.snapshot import Planned, Snapshot, Waiting

#: jobs of one owner in partitions of one tier: which of them goes first changes nobody else's place
Equals = tuple[int, str, int]


def equals(job: Waiting) -> Equals:
    """The jobs that a job may change places with."""
    return job.uid, job.account, job.tier


@dataclass(slots=True)
class PlanOfQueue:
    """The plan of a snapshot, in the order of the walk."""

    _spots: dict[int, Planned]
    _reorder: bool
    _at_s: float
    _idle_first: bool
    #: the GPUs on which a job starts now
    _wanted: set[int] = field(default_factory=set)
    #: the owners of the jobs that start now and have not been met yet
    _behind: dict[Equals, int] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshot: Snapshot, idle_first: bool) -> "PlanOfQueue":
        """That of a snapshot; without one it says nothing. ``idle_first``: no job starts beside
        others while a GPU is idle for nobody."""
        spots = {one.job_id: one for one in snapshot.plan}
        plan = cls(spots, snapshot.rules.reorder, snapshot.at_s, idle_first)
        if plan._spots:
            for job in snapshot.waiting:
                if plan.starts(job):
                    plan._wanted.update(plan._spots[job.job_id].gpus)
                    plan._behind[equals(job)] = plan._behind.get(equals(job), 0) + 1
        return plan

    def starts(self, job: Waiting) -> bool:
        """Whether the plan starts it now."""
        spot = self._spots.get(job.job_id)
        return spot is not None and spot.now

    def met(self, job: Waiting) -> None:
        """Note that the walk is at this job."""
        if self.starts(job):
            self._behind[equals(job)] -= 1

    def slots(self, job: Waiting, allowed: Sequence[GpuSlot]) -> tuple[GpuSlot, ...] | None:
        """Where the plan starts a job now, of the slots that it may get; None: not now."""
        if not self.starts(job):
            return None
        wanted = self._spots[job.job_id].gpus
        found = tuple(slot for slot in allowed if slot.index in wanted)
        if len(found) < len(wanted) or (self._idle_first and self._spares(found, allowed)):
            return None
        return found

    def _spares(self, slots: Sequence[GpuSlot], allowed: Sequence[GpuSlot]) -> bool:
        """Whether it would be beside others while a GPU that it may get is idle for nobody."""
        return any(slot.residents for slot in slots) and any(
            not slot.residents and slot.index not in self._wanted for slot in allowed
        )

    def holds(self, job: Waiting) -> bool:
        """Whether a job waits because the plan starts it later: equal jobs alone may pass it."""
        spot = self._spots.get(job.job_id)
        return spot is not None and not spot.now and self.may_wait(job)

    def awaited(self, job: Waiting) -> Sequence[int]:
        """The GPUs, by number, on which the plan starts a job now and for which it may wait: until
        telemetry no longer shows who was there."""
        spot = self._spots.get(job.job_id)
        return spot.gpus if spot and spot.now and spot.left and self.may_wait(job) else ()

    def may_wait(self, job: Waiting) -> bool:
        """Whether a job may wait for the plan's sake: not longer than without sharing, and for
        equal jobs alone."""
        if not self._reorder:
            return False
        if job.due_s is not None and job.due_s <= self._at_s:
            return False
        others = (count for owner, count in self._behind.items() if owner != equals(job))
        return not any(others)
