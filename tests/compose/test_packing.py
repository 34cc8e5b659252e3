# SPDX-License-Identifier: Apache-2.0
"""Where shares go, by `scontrol show node -d`: the first GPU they fit on, or the emptiest one."""

from collections.abc import Iterator

import pytest

from tests.cluster.jobs import mlp_summary
from tests.compose.cluster import Cluster

pytestmark = pytest.mark.needs_slurm("24.11", "shows no use per device")


@pytest.fixture
def least_loaded(cluster: Cluster) -> Iterator[None]:
    """The cluster with LL_SHARED_GRES, and afterwards as before."""
    with cluster.selecting("LL_SHARED_GRES"):
        yield


def fill(cluster: Cluster, partition: str, millions: list[int]) -> list[int]:
    """Jobs of these sizes one after another; the shards of each, all of them running."""
    shards = []
    for size in millions:
        path = f"/home/ada/packing-{size}.txt"
        cluster.put(path, mlp_summary(size), user="ada")
        words = [f"--coloc={path}", "--gpus=1", "--mem=10", "-p", partition]
        job = cluster.sbatch(*words, wrap="sleep 300")
        shards.append(cluster.wait(job, "RUNNING").shards)
        assert shards[-1], cluster.coloc("explain", str(job), user="ada")
    return shards


def used(cluster: Cluster, node: str) -> list[int]:
    devices = cluster.use(node)
    assert not any(one.whole for one in devices)
    return [one.shards_used for one in devices]


@pytest.mark.parametrize(("node", "partition"), [("g1", "a100"), ("g2", "h100")])
def test_first_fit(cluster: Cluster, node: str, partition: str) -> None:
    """The thesis' MUG: a GPU in use before a free one."""
    a, b = fill(cluster, partition, [500, 300])
    assert used(cluster, node)[:2] == [a + b, 0]
    [big] = fill(cluster, partition, [1000 if node == "g1" else 2700])
    [small] = fill(cluster, partition, [60])
    assert used(cluster, node)[:2] == [a + b + small, big], "the hole is filled first"


@pytest.mark.parametrize(("node", "partition"), [("g1", "a100"), ("g2", "h100")])
def test_least_loaded(cluster: Cluster, least_loaded: None, node: str, partition: str) -> None:
    """The thesis' MAGM: the GPU with the largest free part."""
    gpus = len(cluster.use(node))
    sizes = [1000, 500, 300, 60][:gpus]
    expected = fill(cluster, partition, sizes)
    assert used(cluster, node) == expected, "each GPU gets one before any gets two"
    assert expected == sorted(expected, reverse=True)
    for size in (60, 60):
        emptiest = expected.index(min(expected))
        expected[emptiest] += fill(cluster, partition, [size])[0]
        assert used(cluster, node) == expected
