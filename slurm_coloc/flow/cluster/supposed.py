# SPDX-License-Identifier: Apache-2.0
"""The cluster as it would be with shards, for a site that observes before it has any."""

from dataclasses import replace

from slurm_coloc.config import Config
from slurm_coloc.core.gpu.cards import shards_of
from slurm_coloc.core.slurm.cluster import ClusterShape
from slurm_coloc.flow.cluster.telemetry import Live


def with_supposed_shards(
    config: Config, shape: ClusterShape | None, live: Live
) -> ClusterShape | None:
    """The shape, where nothing is on and no node has shards: with those that the memory of each
    node's GPUs gives, as its agent tells. Else as it is: a decision may be asked of Slurm."""
    mode = config.mode
    acts = mode.default == "on" or any(rule.mode == "on" for rule in mode.rules)
    if shape is None or acts or any(node.shards for node in shape.nodes):
        return shape
    pool, nodes = config.pool, []
    for node in shape.nodes:
        figures = live.of(node.name)
        sizes = [gpu.total_mib for gpu in figures[1]] if figures else []
        each = shards_of(min(sizes), pool.shard_mib, pool.margin_mib) if sizes else 0
        nodes.append(replace(node, shards=each * node.gpus))
    return replace(shape, nodes=tuple(nodes))
