# SPDX-License-Identifier: Apache-2.0
"""The order of the queue is Slurm's."""

from dataclasses import replace

import pytest

from slurm_coloc.core.place.queue_order import BY_QOS, BY_TIER, QueueOrder, queue_order
from slurm_coloc.core.place.queued_jobs import Queued
from slurm_coloc.core.slurm.cluster import ClusterShape, PartitionShape
from slurm_coloc.core.slurm.qos_limits import LimitOwner, SiteLimits

JOB = Queued(1, "1", "PENDING", 1000, 1000, partition="main", submit_s=100.0)
TIERS = {"main": 1, "urgent": 10, "spare": 0}


def job(job_id: int, **values: object) -> Queued:
    return replace(JOB, job_id=job_id, handle=str(job_id), **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (job(2, partition="urgent", priority=1), job(1)),
        (job(2), job(1, partition="spare", priority=9000)),
        (job(2, partition="spare,urgent", priority=1), job(1)),  # the highest of several
        (job(2, priority=1001), job(1)),
        (job(2, submit_s=99.0), job(1)),  # put back later than the other came
        (job(1), job(2)),
        (job(9, array_id=3), job(5)),  # a task stands where its array does
        (job(2, reservation="r", partition="spare"), job(1, partition="urgent")),
        (job(2), job(1, partition="elsewhere", priority=1)),  # a partition nobody knows: 1
    ],
)
def test_order(first: Queued, second: Queued) -> None:
    assert QueueOrder(TIERS).sort([second, first]) == [first, second]


def test_who_may_preempt_whom_comes_first() -> None:
    parts = (PartitionShape("main"), PartitionShape("urgent", priority_tier=9))
    shape = ClusterShape("c", (24, 11), partitions=parts)
    limits = SiteLimits(
        {"high": LimitOwner("high", preempts=frozenset({"low"})), "low": LimitOwner("low")}
    )
    low = job(1, qos="low", partition="urgent", priority=9000)
    high, other = job(2, qos="high"), job(3, qos="normal")
    by_qos = queue_order(replace(shape, preempt_type=BY_QOS), limits)
    assert by_qos.sort([low, high]) == [high, low]
    assert queue_order(shape, limits).sort([high, low]) == [low, high]
    assert by_qos.sort([other, high]) == [high, other]


def test_under_preemption_by_partition_tiers_come_before_reservations() -> None:
    shape = ClusterShape("c", (24, 11), partitions=(PartitionShape("urgent", priority_tier=9),))
    kept, urgent = job(1, reservation="r"), job(2, partition="urgent")
    assert queue_order(shape, SiteLimits()).sort([urgent, kept]) == [kept, urgent]
    line = queue_order(replace(shape, preempt_type=BY_TIER), SiteLimits())
    assert line.sort([kept, urgent]) == [urgent, kept]
