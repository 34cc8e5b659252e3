# SPDX-License-Identifier: Apache-2.0
"""What colocd remembers of waiting jobs between two rounds of placing."""

from collections.abc import Collection
from dataclasses import dataclass, field

from slurm_coloc.core.place.queued_jobs import Queued
from slurm_coloc.core.records.runs import StoredDecision


def key(job: Queued) -> tuple[int, int]:
    """A job and its restart."""
    return job.job_id, job.restarts


@dataclass(slots=True)
class Memory:
    """What colocd remembers of waiting jobs, by job and restart. All of it may be lost: a pin
    stands in the job's own request.

    ``since``: of a pin, or of waiting at the gate (Unix seconds); ``waits_until``: until when a job
    that waits at the gate is kept from starting; ``begun``: decisions whose job was submitted so;
    ``given_up``: left to Slurm; ``free``: those whose Extra was seen to since they last waited;
    ``decisions``: as they were read.
    """

    since: dict[tuple[int, int], float] = field(default_factory=dict)
    waits_until: dict[tuple[int, int], float] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    given_up: set[tuple[int, int]] = field(default_factory=set)
    free: set[tuple[int, int]] = field(default_factory=set)
    decisions: dict[str, StoredDecision] = field(default_factory=dict)

    def forget(self, present: Collection[tuple[int, int]]) -> None:
        """Jobs that do not wait any more."""
        for kept in (self.since, self.waits_until):
            for key in kept.keys() - set(present):
                del kept[key]
        self.given_up &= set(present)
        self.free &= set(present)
        if len(self.decisions) > 4096:
            self.decisions.clear()
        if len(self.begun) > 4096:
            self.begun.clear()
