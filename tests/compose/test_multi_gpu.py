# SPDX-License-Identifier: Apache-2.0
"""A job of two GPUs, one a task, that shares both of them, by `scontrol show node -d`."""

import re
from collections.abc import Iterator

import pytest

from tests.cluster.jobs import mlp_summary
from tests.compose.cluster import Cluster

pytestmark = pytest.mark.needs_slurm("24.11", "no shards of several GPUs in one job")


@pytest.fixture
def by_task(cluster: Cluster) -> Iterator[None]:
    """The cluster with MULTIPLE_SHARING_GRES_PJ, and afterwards as before."""
    with cluster.selecting("MULTIPLE_SHARING_GRES_PJ"):
        yield


def used(cluster: Cluster, node: str) -> list[int]:
    devices = cluster.use(node)
    assert not any(one.whole for one in devices)
    return [one.shards_used for one in devices]


@pytest.mark.parametrize(("node", "partition"), [("g1", "a100"), ("g2", "h100")])
def test_two_gpus_shared(cluster: Cluster, by_task: None, node: str, partition: str) -> None:
    """Two tasks on two devices, as many shards on each; a job of one GPU fits in beside them."""
    cluster.put("/home/ada/two.txt", mlp_summary(400), user="ada")
    where = ["--coloc=/home/ada/two.txt", "--gpus-per-task=1", "--mem=10", "-p", partition]
    gpus = len(cluster.use(node))

    def shared() -> list[int]:
        # colocd learns of the parameter with its next look at slurm.conf.
        see = "srun --mem=1 sh -c 'echo task $SLURM_PROCID sees $CUDA_VISIBLE_DEVICES'; sleep 120"
        job = cluster.sbatch(*where, "-n2", wrap=see)
        cluster.wait(job, "RUNNING")
        found = used(cluster, node) if not any(one.whole for one in cluster.use(node)) else []
        if sum(one > 0 for one in found) == 2:
            cluster.until(lambda: cluster.output(job).count("sees") == 2, 60, "both tasks speak")
            told = re.findall(r"task (\d) sees (\S+)", cluster.output(job))
            assert sorted(task for task, _ in told) == ["0", "1"]
            return found
        cluster.run(["scancel", "-f", str(job)])
        cluster.until(cluster.idle, 60, "the job ends")
        return []

    found = cluster.until(shared, 90, "colocd shares both GPUs")
    assert len(found) == gpus
    assert found[0] == found[1] > 0 and sum(found) == 2 * found[0]
    one = cluster.sbatch(*where, "-n1", wrap="sleep 120")
    cluster.wait(one, "RUNNING")
    beside = used(cluster, node)
    more = sum(beside) - sum(found)
    assert 0 < more < found[0], "one task alone has no buckets of DDP"
    assert sum(a != b for a, b in zip(beside, found, strict=True)) == 1, "on one device alone"
