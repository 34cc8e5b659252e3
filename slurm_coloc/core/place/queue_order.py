# SPDX-License-Identifier: Apache-2.0
"""The order in which Slurm considers waiting jobs (sort_job_queue2 of slurmctld, read at 24.11).

Preemption between QOS counts first, then a reservation, the partition's PriorityTier, the priority,
the time of submission and the id (an array's for its tasks). Under preempt/partition_prio
preemption follows the order of the tiers.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cmp_to_key

from slurm_coloc.core.place.queued_jobs import Queued
from slurm_coloc.core.slurm.cluster import ClusterShape
from slurm_coloc.core.slurm.qos_limits import SiteLimits

#: PreemptType of slurm.conf under which a QOS names those that it may preempt.
BY_QOS, BY_TIER = "preempt/qos", "preempt/partition_prio"


@dataclass(frozen=True, slots=True)
class QueueOrder:
    """The settings that the order depends on. ``tiers``: by partition; ``preempts``: those that
    each QOS may preempt, empty if QOS do not count; ``tier_first``: before reservations."""

    tiers: Mapping[str, int] = field(default_factory=dict)
    preempts: Mapping[str, frozenset[str]] = field(default_factory=dict)
    tier_first: bool = False

    def tier(self, partition: str) -> int:
        """The highest tier of a job's partitions: Slurm considers the job once for each."""
        return max(self.tiers.get(name, 1) for name in partition.split(","))

    def sort(self, jobs: Iterable[Queued]) -> list[Queued]:
        """The jobs in Slurm's order."""
        found = sorted(jobs, key=self._key)
        if any(self.preempts.values()):
            found.sort(key=cmp_to_key(self._by_qos))
        return found

    def _key(self, job: Queued) -> tuple[float, ...]:
        tier, reserved = -self.tier(job.partition), not job.reservation
        before = (tier, reserved) if self.tier_first else (reserved, tier)
        return (*before, -job.priority, job.submit_s or 0.0, job.array_id or job.job_id, job.job_id)

    def _by_qos(self, one: Queued, other: Queued) -> int:
        if other.qos in self.preempts.get(one.qos, ()):
            return -1
        if one.qos in self.preempts.get(other.qos, ()):
            return 1
        return -1 if self._key(one) < self._key(other) else 1


def queue_order(shape: ClusterShape, limits: SiteLimits) -> QueueOrder:
    """How this cluster orders its queue."""
    tiers = {part.name: part.priority_tier for part in shape.partitions}
    preempts = {}
    if shape.preempt_type == BY_QOS:
        preempts = {name: holder.preempts for name, holder in limits.qos.items()}
    return QueueOrder(tiers, preempts, shape.preempt_type == BY_TIER)
