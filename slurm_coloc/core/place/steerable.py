# SPDX-License-Identifier: Apache-2.0
"""Whether a cluster can be steered, pure."""

from collections.abc import Collection

from slurm_coloc.core.slurm.cluster import ClusterShape, NodeShape
from slurm_coloc.core.slurm.hosts import in_nodes
from slurm_coloc.core.slurm.qos_limits import GPU, SiteLimits
from slurm_coloc.core.slurm.releases import PINS, shown


def refusals(shape: ClusterShape, limits: SiteLimits) -> list[str]:
    """The reasons why jobs cannot be pinned on this cluster; none where they can."""
    found = []
    if not PINS.holds(shape.release):
        found.append(
            f"Slurm {shown(shape.release)} cannot be steered, {shown(PINS.first)} and later can"
        )
    found += typed_limits(shape, limits)
    return found


def may_pin(node: NodeShape, pool: Collection[str], named: Collection[str]) -> bool:
    """Whether jobs can be pinned on a node. ``pool``: the partitions that share; ``named``: the
    nodes and features that are steered; () for all."""
    if not node.devices or not node.shards or (pool and not set(pool) & set(node.partitions)):
        return False
    return not named or any(one in node.features or in_nodes(one, node.name) for one in named)


def pinned_on(
    shape: ClusterShape, limits: SiteLimits, pool: Collection[str], named: Collection[str]
) -> frozenset[str]:
    """The nodes on which jobs can be pinned to GPUs; none where the cluster cannot be steered."""
    if refusals(shape, limits):
        return frozenset()
    return frozenset(node.name for node in shape.nodes if may_pin(node, pool, named))


def typed_limits(shape: ClusterShape, limits: SiteLimits) -> list[str]:
    """Limits on a model of GPUs, which have no effect where each GPU has a type of its own."""
    models = shape.steerable
    return sorted(
        f"{option} {tres} of {holder.title} counts a type that no GPU has when each has its own"
        for holder in limits.owners()
        for option, counts in holder.limits.items()
        for tres in counts
        if tres.startswith(f"{GPU}:") and tres.removeprefix(f"{GPU}:") in models
    )
