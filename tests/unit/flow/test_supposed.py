# SPDX-License-Identifier: Apache-2.0
"""A site that observes before it has shards is told what it would get with them."""

import pytest

from slurm_coloc.config import Config, ModeConfig, ModeRule
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeShape
from slurm_coloc.flow.cluster.supposed import with_supposed_shards
from slurm_coloc.flow.cluster.telemetry import GpuNow

NODE = NodeShape("n1", ("main",), (), "a100", 2, 0)
SHAPE = ClusterShape("site", (24, 11), (NODE,))


class Cards:
    """The agents' last figures: cards of 40 GiB on n1."""

    def of(self, node: str) -> tuple[float, tuple[GpuNow, ...]] | None:
        gpus = tuple(GpuNow(uuid=f"GPU-{n}", total_mib=40960, free_mib=40960) for n in range(2))
        return (0.0, gpus) if node == "n1" else None


def shards(config: Config, shape: ClusterShape) -> list[int]:
    found = with_supposed_shards(config, shape, Cards())  # type: ignore[arg-type]
    assert found is not None
    return [node.shards for node in found.nodes]


def test_what_the_cards_would_give() -> None:
    two = ClusterShape("site", (24, 11), (NODE, NodeShape("n2", ("main",), (), "a100", 2, 0)))
    assert shards(Config(), two) == [78, 0]  # the agent of n2 has told nothing yet


@pytest.mark.parametrize(
    "mode",
    [ModeConfig(default="on"), ModeConfig(rules=(ModeRule(partition="gpu", mode="on"),))],
)
def test_not_where_a_decision_would_be_asked_of_slurm(mode: ModeConfig) -> None:
    assert shards(Config(mode=mode), SHAPE) == [0]


def test_not_where_there_are_shards() -> None:
    some = ClusterShape("site", (24, 11), (NODE, NodeShape("n2", ("main",), (), "a100", 1, 20)))
    assert shards(Config(), some) == [0, 20]
    assert with_supposed_shards(Config(), None, Cards()) is None  # type: ignore[arg-type]
