# SPDX-License-Identifier: Apache-2.0
"""A training on two nodes that shares one GPU of each, with other jobs beside it."""

import re
from collections.abc import Iterator

import pytest

from slurm_coloc.lab.lab import Lab
from slurm_coloc.lab.spec import LabSpec
from tests.cluster.conftest import PREFIX, lab_of
from tests.cluster.jobs import Desk, desk, until
from tests.cluster.test_overrun import LEAVE, story

pytestmark = [
    pytest.mark.needs_slurm("24.11", "on 22.05 whole GPUs and shares are not kept apart"),
    pytest.mark.timeout(240),
]
GANG = ("--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=1", "--mem=200")


@pytest.fixture(scope="module")
def module_lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """One lab of two nodes with a GPU each for this file; Slurm keeps the users apart."""
    spec = LabSpec(name=f"{PREFIX}g", machine="1xa100-40gb", nodes=2, exclusive_user=True)
    with lab_of(request, spec) as lab:
        yield lab


@pytest.fixture
def two(module_lab: Lab) -> Iterator[Lab]:
    """The lab; its jobs are ended after each test."""
    yield module_lab
    module_lab.clear()


def shards(lab: Lab, job_id: int) -> int:
    """Shards that a job asks for on each node; 0 for whole GPUs."""
    found = re.search(r"shard:(?:\w+:)?(\d+)", lab.job(job_id).get("TresPerNode", ""))
    return int(found[1]) if found else 0


def used(lab: Lab) -> list[int]:
    """Shards taken on each node's GPU."""
    found = []
    for node in ("n1", "n2"):
        text = lab.run(["scontrol", "show", "node", node, "-d"]).stdout
        taken = re.search(r"GresUsed=\S*shard:[^(]*\((\d+)/", text)
        found.append(int(taken[1]) if taken else 0)
    return found


def parts(me: Desk, job_id: int) -> dict[str, int]:
    """The peak on each node by the agents (MiB)."""
    run = me.explain(job_id)["runs"][-1]
    return {one["node"]: one["gpus"][0]["peak_mib"] for one in run["used"] or ()}


def test_each_node_gives_the_same_share_beside_others(two: Lab) -> None:
    me = desk(two, 190)
    single = me.submit(
        "--mem=100", "--nodelist=n2", wrap=me.train(memory_mib=2000, smact=0.1, work_s=600)
    )
    two.wait(single, "RUNNING")
    until(lambda: "step " in two.output(single), 30, "it trains")
    train = me.train(memory_mib=2500, smact=0.2, work_s=12)
    job_id = me.submit(*GANG, wrap=f"srun {train}")
    job = two.wait(job_id, "RUNNING")
    each = shards(two, job_id)
    assert 0 < each < 39 and job["NumNodes"] == "2"
    assert used(two) == [each, each + shards(two, single)]
    told = me.explain(job_id)
    assert "on each of 2 GPUs" in told["decision"]["why"]
    two.wait(job_id, "COMPLETED", 90)
    until(lambda: set(parts(me, job_id)) == {"n1", "n2"}, 60, "both agents have told")
    assert all(2500 <= peak <= 3300 for peak in parts(me, job_id).values())
    out = two.output(job_id)
    clients = re.findall(r"rank \d on (GPU-\S+) .*fence (\d+) MiB, MPS client", out)
    assert len({uuid for uuid, _ in clients}) == 2, out
    assert {int(mib) for _, mib in clients} == {each * 1024}
    assert two.job(single)["JobState"] == "RUNNING"


def test_who_runs_out_on_the_second_node_comes_back_with_more_on_both(two: Lab) -> None:
    me = desk(two, 180, user=1)
    small, large = (me.train(memory_mib=mib, smact=0.2, work_s=3) for mib in (2000, 12000))
    script = (
        '#!/bin/bash\necho "run $SLURM_RESTART_COUNT"\n'
        f"srun bash -c '[ $SLURM_NODEID = 0 ] && exec {small} || exec {large}'\n"
    )
    job_id = me.submit(*GANG, script=script)
    before = shards(two, job_id)
    assert 0 < before * 1024 < 12000
    until(lambda: int(two.job(job_id)["Restarts"]) >= 1, 90, "it is put back")
    job = two.wait(job_id, "COMPLETED", 120)
    assert job["NumNodes"] == "2"
    assert "run 1" in two.output(job_id)
    until(lambda: me.explain(job_id)["runs"][-1]["outcome"] == "completed", 30, "it has ended")
    found = [run["outcome"] for run in me.explain(job_id)["runs"]]
    assert found[0] == "oom-gpu" and found[-1] == "completed"
    after = shards(two, job_id)
    assert after == 0 or after > before


def test_two_users_are_never_on_one_gpu(two: Lab) -> None:
    first, second = desk(two, 191), desk(two, 192, user=1)
    mine = first.submit(*GANG, wrap=f"srun {first.train(memory_mib=2500, smact=0.2, work_s=8)}")
    two.wait(mine, "RUNNING")
    theirs = second.submit(*GANG, wrap=f"srun {second.train(memory_mib=2500, smact=0.2, work_s=2)}")
    assert shards(two, mine) and shards(two, theirs)
    ended = two.wait(mine, "COMPLETED", 60)["EndTime"]
    assert two.wait(theirs, "COMPLETED", 60)["StartTime"] >= ended


def test_who_leaves_mps_on_the_second_node_is_seen(two: Lab) -> None:
    me = desk(two, 193)
    small, much = (me.train(memory_mib=mib, smact=0.1, work_s=600) for mib in (2000, 25000))
    script = f"#!/bin/bash\nsrun bash -c '[ $SLURM_NODEID = 0 ] && exec {small}; {LEAVE}; {much}'\n"
    job_id = me.submit(*GANG, "--no-requeue", script=script)
    two.wait(job_id, "RUNNING")
    (said,) = until(lambda: story(me, job_id, "overrun"), 60, "its story says so")
    assert f"{shards(two, job_id)}.0 GiB were promised" in said


def test_what_gets_whole_gpus_says_why(two: Lab) -> None:
    me = desk(two, 190)

    def said(*args: str) -> str:
        argv = ["sbatch", f"--coloc={me.summary}", "--hold", "--mem=200", *args, "--wrap=true"]
        return two.run(argv, user=me.user).stderr

    assert "only one GPU of each" in said("-N2", "--ntasks-per-node=2", "--gpus-per-node=1")
    assert "only one GPU of each" in said("-N2", "--gpus=2")
    assert "shares 2 GPUs" in said(*GANG)
    assert "shares 2 GPUs" in said("-N2", "--ntasks-per-node=1", "--gpus-per-task=1")
