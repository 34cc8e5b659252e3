# SPDX-License-Identifier: Apache-2.0
"""The cluster as it would be with shards, for a site that observes before it has any."""

import time
from dataclasses import replace

from slurm_coloc.config import Config
from slurm_coloc.core.gpu.cards import shards_of
from slurm_coloc.core.slurm.cluster import ClusterShape
from slurm_coloc.flow.cluster.telemetry import Live

FRESH_S = 5.0


class SupposedShards:
    """The shape of with_supposed_shards, made at most once in FRESH_S: submissions ask for it."""

    def __init__(self) -> None:
        self._at_s = 0.0
        self._of: tuple[Config, ClusterShape] | None = None
        self._made: ClusterShape | None = None

    def shape(self, config: Config, seen: ClusterShape | None, live: Live) -> ClusterShape | None:
        """As ``seen``, or with supposed shards."""
        same = self._of is not None and self._of[0] is config and self._of[1] is seen
        if not same or time.monotonic() - self._at_s > FRESH_S:
            self._made = with_supposed_shards(config, seen, live)
            self._of = None if seen is None else (config, seen)
            self._at_s = time.monotonic()
        return self._made


def with_supposed_shards(
    config: Config, shape: ClusterShape | None, live: Live
) -> ClusterShape | None:
    """The shape, where nothing is on and no node has shards: with those that the memory of each
    node's GPUs gives, as its agent tells. Else as it is: a decision may be asked of Slurm."""
    mode = config.mode
    acts = mode.default == "on" or any(rule.mode == "on" for rule in mode.rules)
    if shape is None or acts or any(one.node.shards for one in shape.kinds):
        return shape
    pool, nodes = config.pool, []
    for node in shape.nodes:
        figures = live.of(node.name)
        sizes = [gpu.total_mib for gpu in figures[1]] if figures else []
        each = shards_of(min(sizes), pool.shard_mib, pool.margin_mib) if sizes else 0
        nodes.append(replace(node, shards=each * node.gpus))
    return replace(shape, nodes=tuple(nodes))
