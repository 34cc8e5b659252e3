# SPDX-License-Identifier: Apache-2.0
"""The part of the configuration that decides where jobs are placed."""

from slurm_coloc.config import Config
from slurm_coloc.core.place.gate_wait import Way
from slurm_coloc.core.place.steerable import refusals
from slurm_coloc.core.place.steering import Rules
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeShape
from slurm_coloc.core.slurm.hosts import in_nodes
from slurm_coloc.core.slurm.qos_limits import SiteLimits


def rules_of(config: Config, way: Way = Way.START) -> Rules:
    """The part of [placement] and [sharing] that decides. ``way``: how a job can wait at the gate;
    without a way that keeps its age, no job waits there."""
    place = config.placement
    return Rules(
        policy=place.policy,
        smact_gate=1.0 if way is Way.NONE else place.smact_gate,
        stale_s=place.stale_s,
        max_pin_s=place.max_pin_s,
        ahead=place.ahead,
        shard_mib=config.pool.shard_mib,
        max_jobs=config.pool.max_jobs_per_gpu,
        multi_user=config.sharing.users == "all",
        window_s=config.agent.window_s,
        whole_first=place.whole_first,
        share_with=config.sharing.with_,
        idle_first=place.idle_first,
    )


def is_steered(node: NodeShape, config: Config) -> bool:
    """Whether jobs are pinned on this node."""
    if config.placement.mode != "steered" or not node.devices or not node.shards:
        return False
    pool = config.pool.partitions
    if pool and not set(pool) & set(node.partitions):
        return False
    named = config.placement.nodes
    return not named or any(one in node.features or in_nodes(one, node.name) for one in named)


def pinned_on(config: Config, shape: ClusterShape, limits: SiteLimits) -> frozenset[str]:
    """The nodes on which colocd pins jobs to GPUs; none where the cluster cannot be steered."""
    if refusals(shape, limits):
        return frozenset()
    return frozenset(node.name for node in shape.nodes if is_steered(node, config))
