# SPDX-License-Identifier: Apache-2.0
"""What jobs ask for, as placing reads it: GPUs, shards, a pin, and the nodes they may get."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial

from slurm_coloc.core.decide.decision import Action, Reason
from slurm_coloc.core.decide.request import JobRequest
from slurm_coloc.core.place.queued_jobs import Queued
from slurm_coloc.core.place.steering import Pin
from slurm_coloc.core.records.runs import StoredDecision
from slurm_coloc.core.slurm.cluster import (
    ClusterShape,
    NodeShape,
    features_fit,
    plain,
    wanted_partitions,
)
from slurm_coloc.core.slurm.gres import count_of, parse_gres
from slurm_coloc.core.slurm.hosts import in_nodes

#: reasons of decisions whose jobs wait for no plan
LEFT_ALONE = (Reason.HET_JOB, Reason.WHOLE_NODE, Reason.USER_EXCLUSIVE)


def nodes_for(
    shape: ClusterShape, partitions: Collection[str], features: str, excluded: str, wanted: str
) -> tuple[str, ...]:
    """The GPU nodes that Slurm may give to a job of these partitions and this plain constraint,
    without the ``excluded`` ones and only those its owner ``wanted`` ("": any)."""
    wanted_parts = set(partitions)
    return tuple(
        node.name
        for node in shape.nodes
        if not wanted_parts.isdisjoint(node.partitions)
        and features_fit(features, node.features)
        and not (excluded and in_nodes(excluded, node.name))
        and (not wanted or in_nodes(wanted, node.name))
    )


@dataclass(frozen=True, slots=True)
class NodeLookup:
    """The cluster as a round goes through its jobs. ``nodes_for``: as above, each answer found
    once."""

    shape: ClusterShape
    by_name: Mapping[str, NodeShape]
    nodes_for: Callable[..., tuple[str, ...]]

    @classmethod
    def of(cls, shape: ClusterShape) -> "NodeLookup":
        """Of this shape."""
        by_name = {one.name: one for one in shape.nodes}
        return cls(shape, by_name, cache(partial(nodes_for, shape)))


def nodes_for_submission(request: JobRequest, shape: ClusterShape) -> tuple[str, ...]:
    """The GPU nodes that Slurm may give to a submission."""
    bounds = (request.features or "", request.exc_nodes or "", request.req_nodes or "")
    return nodes_for(shape, wanted_partitions(request, shape), *bounds)


def users_without_gpus(
    queue: Iterable[Queued], with_gpus: Iterable[Queued], lookup: NodeLookup
) -> Mapping[str, tuple[int, ...]]:
    """Users of the jobs of one node without GPUs, by node; {} where no partition gives nodes to one
    user at a time."""
    found: dict[str, set[int]] = {}
    if any(part.exclusive_user for part in lookup.shape.partitions):
        known = {job.job_id for job in with_gpus}
        for job in queue:
            if job.nodes in lookup.by_name and not job.waits and job.job_id not in known:
                found.setdefault(job.nodes, set()).add(job.uid)
    return {node: tuple(sorted(users)) for node, users in found.items()}


def is_typed(job: Queued) -> bool:
    """Whether the job asks for shards of a type. Users may not ask for them, so it is a pin."""
    return any(one.name == "shard" and one.type for one in parse_gres(job.tres))


def is_holdable(job: Queued, decision: StoredDecision) -> bool:
    """Whether a plan may let a job on whole GPUs wait: a plain one of one node that has not run yet
    and that did not ask to be left alone."""
    return (
        decision.action == Action.EXCLUSIVE
        and decision.mode == "on"
        and decision.reason not in LEFT_ALONE
        and job.num_nodes == 1
        and not (job.restarts or job.array or job.array_id or job.reservation or job.cut)
        and plain(job.features)
    )


def is_pinnable(job: Queued, decision: StoredDecision, unpinned: int) -> bool:
    """Whether the job may be pinned: it has shards of one GPU by our decision, or will have
    ``unpinned`` of them with its next pin."""
    items = [one for one in parse_gres(job.tres) if one.name in ("gpu", "shard")]
    per_task = names_gpus(job.tres_per_task)
    return (
        decision.action == Action.COLLOCATE
        and decision.mode == "on"
        and ([one.name for one in items] == ["shard"] or unpinned > 0)
        and not (per_task and (job.num_tasks > 1 or names_gpus(job.tres_per_node)))
        and not names_gpus(job.tres_per_job)
        and job.num_nodes == 1
        and not job.reservation
        and plain(job.features)
        and not job.cut
    )


def names_gpus(tres: str) -> bool:
    return any(one.name in ("gpu", "shard") for one in parse_gres(tres))


def shards_of(job: Queued) -> int:
    """Shards of a request, per node or per task."""
    return count_of(job.tres_per_node, "shard") or count_of(job.tres_per_task, "shard") or 0


def gpus_of(job: Queued) -> int:
    """GPUs of a request; 0 without any."""
    if count_of(job.tres_per_node, "shard"):
        return job.num_nodes
    tasks = count_of(job.tres_per_task, "gpu") or count_of(job.tres_per_task, "shard")
    if tasks is not None:
        return max(1, job.num_tasks)
    each = count_of(job.tres_per_node, "gpu")
    if each is not None:
        return each * job.num_nodes
    return count_of(job.tres_per_job, "gpu") or 0


def place_of_pin(job: Queued, node: NodeShape) -> int | None:
    """The index of the GPU of this node that the job is pinned to."""
    for item in parse_gres(job.tres):
        if item.name == "shard" and item.type in node.devices:
            return node.devices.index(item.type or "")
    return None


def pin_of(job: Queued, shape: ClusterShape) -> Pin | None:
    """Where a waiting job is pinned. A type without a node counts as no pin, so that it is set
    again: two nodes have types of the same name."""
    for item in parse_gres(job.tres):
        if item.name == "shard" and item.type:
            there = [node.name for node in shape.nodes if item.type in node.devices]
            if there:
                return Pin(job.req_nodes, item.type)
    return None
