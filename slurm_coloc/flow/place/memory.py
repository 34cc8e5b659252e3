# SPDX-License-Identifier: Apache-2.0
"""What colocd remembers of waiting jobs between two rounds of placing."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from slurm_coloc.core.place.gate_wait import ahead_s
from slurm_coloc.core.place.queued_jobs import Queued
from slurm_coloc.core.place.steering import Why
from slurm_coloc.core.records.runs import StoredDecision
from slurm_coloc.core.slurm.job import decision_in

FEW = 4096  # decisions: fewer are not worth a check

#: A round of a long queue takes slurmctld seconds: the pause behind it is so many times as long,
#: but no longer than MOST_S. One pause differs from the last by so much at most: a start time of
#: ours must not come before the next round, nor lie so far ahead that it is taken for its owner's.
REST, MOST_S = 5.0, 60.0
SHORTER, LONGER = 0.75, 2.0


def key(job: Queued) -> tuple[str, int]:
    """A job, or a task of an array, and its restart: the tasks that wait share one number."""
    return job.handle, job.restarts


def _decision(job: Queued) -> str:
    return decision_in(job.admin_comment) or ""


@dataclass(slots=True)
class Memory:
    """Keyed by job and restart. All of it may be lost: a pin stands in the job's own request.

    ``since``: when the job was pinned or began to wait at the gate (Unix seconds); ``waits_until``:
    until when it is kept from starting at the gate; ``begun``: decisions whose jobs were submitted
    waiting, with the reason that was noted; ``said``: the reasons for which a job waits that were
    noted; ``given_up``: jobs left to Slurm; ``free``: jobs whose Extra was checked since they
    last waited; ``decisions``: a cache of the database; ``unpinned``: of its events, the shards of
    a job that asks for a whole GPU until it is pinned (0: it does not). ``interval_s``: seconds
    between two rounds, placement.interval_s or more (``paced``).
    """

    interval_s: float
    since: dict[tuple[str, int], float] = field(default_factory=dict)
    waits_until: dict[tuple[str, int], float] = field(default_factory=dict)
    begun: dict[str, Why | None] = field(default_factory=dict)
    said: dict[tuple[str, int], set[Why]] = field(default_factory=dict)
    given_up: set[tuple[str, int]] = field(default_factory=set)
    free: set[tuple[str, int]] = field(default_factory=set)
    decisions: dict[str, StoredDecision] = field(default_factory=dict)
    unpinned: dict[tuple[str, int], int] = field(default_factory=dict)

    def is_news(self, job: Queued, why: Why) -> bool:
        """Whether it was not noted yet that a job waits for this reason; then it is now."""
        said, begun = self.said.setdefault(key(job), set()), self.begun.get(_decision(job))
        new = why not in said and why is not begun
        said.add(why)
        return new

    @property
    def ahead_s(self) -> float:
        """Seconds that a start time of ours lies ahead; it is renewed before it comes."""
        return ahead_s(self.interval_s)

    def paced(self, least_s: float, took_s: float) -> None:
        """Note how long a round took. ``least_s``: placement.interval_s."""
        wanted_s, last_s = max(least_s, min(REST * took_s, MOST_S)), self.interval_s
        self.interval_s = min(max(wanted_s, SHORTER * last_s), LONGER * last_s)

    def forget(self, queue: Sequence[Queued]) -> None:
        """Forget jobs that wait no longer, and decisions of jobs that have gone."""
        present = {key(job) for job in queue if job.waits}
        known: dict[tuple[str, int], Any]
        for known in (self.since, self.waits_until, self.unpinned, self.said):
            for job in known.keys() - present:
                del known[job]
        self.given_up &= present
        self.free &= present
        if len(self.decisions) > max(FEW, 2 * len(queue)):
            for gone in self.decisions.keys() - {_decision(job) for job in queue}:
                del self.decisions[gone]
        if len(self.begun) > FEW:
            self.begun.clear()
