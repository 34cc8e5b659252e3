# SPDX-License-Identifier: Apache-2.0
"""Small clusters for the pure core."""

import pytest

from slurm_coloc.core.slurm.cluster import ClusterShape, NodeShape, PartitionShape


def make_shape(
    *nodes: NodeShape,
    release: tuple[int, ...] = (24, 11, 5),
    partitions: tuple[PartitionShape, ...] = (PartitionShape("main", default=True),),
) -> ClusterShape:
    """A cluster of ``nodes``."""
    return ClusterShape("test", release, nodes, partitions)


def a100(name: str = "n1", gpus: int = 2, **changes: object) -> NodeShape:
    """A node of A100-40GB: 39 shards a GPU."""
    fields: dict[str, object] = {
        "name": name,
        "partitions": ("main",),
        "features": (),
        "gpu_type": "a100",
        "gpus": gpus,
        "shards": 39 * gpus,
    }
    return NodeShape(**{**fields, **changes})  # type: ignore[arg-type]


def h100(name: str = "h1", gpus: int = 2, **changes: object) -> NodeShape:
    """A node of H100-80GB: 79 shards a GPU."""
    return a100(name, gpus, **{"gpu_type": "h100", "shards": 79 * gpus, **changes})


@pytest.fixture
def shape() -> ClusterShape:
    """One node of two A100."""
    return make_shape(a100())
