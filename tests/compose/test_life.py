# SPDX-License-Identifier: Apache-2.0
"""The whole life of a job, as a plain user lives it: submitted on the login node, packed on the
GPUs of another machine, out of memory there, back on a whole GPU, seen from the login node again.
"""

import random
import re
import time
from itertools import product
from typing import Any

import pytest

from tests.compose.cluster import EXAMPLES, Cluster, Device

RESNET = f"--coloc={EXAMPLES}/resnet50_torchinfo.txt"
#: of one GPU: shards, MiB that a job which lies about itself really takes
CARDS = {"g1": ("a100", 39, 38_000), "g2": ("h100", 79, 78_000)}


#: batch sizes and optimizers, in an order of chance; each is used once
_UNSEEN = iter(
    random.sample(
        list(product(range(2, 32), ["sgd", "sgd-momentum", "adam", "adamw", "adafactor"])), 150
    )
)


def train(**options: object) -> str:
    """The command line of a training stand-in: memory_mib=..., work_s=..., smact=..."""
    words = ["emu-train"]
    for name, value in options.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return " ".join(words)


LONG = train(memory_mib=3000, smact=0.1, work_s=900)


def submit(cluster: Cluster, node: str, *args: str, wrap: str = LONG, user: str = "ada") -> int:
    """A --coloc job in the partition of one node's cards, which got a share."""
    words = ["sbatch", RESNET, "-p", CARDS[node][0], "--mem=50", *args, f"--wrap={wrap}"]
    for _ in range(10):
        done = cluster.run(words, user=user)
        job_id = int(done.stdout.split()[-1])
        # On a crowded machine even 200 ms can be too few; the job then runs on a whole GPU, and the
        # hook's breaker leaves colocd alone for some seconds.
        if not re.search(r"too long|did not answer|not asked|unreachable|away", done.stderr):
            break
        cluster.run(["scancel", str(job_id)])
        time.sleep(3)
    assert f"of {CARDS[node][1]}.0 GiB (" in done.stderr, done.stderr
    return job_id


def another_model() -> list[str]:
    """Options that make of one summary a training that colocd has not seen in this run.

    One that ran out of memory gets a whole GPU at once the next time; so nothing comes twice. Where
    a run begins is by chance, since a cluster that is kept remembers the runs before. A sequence
    length, which says nothing of a CNN's memory, keeps the history of one batch size from another.
    """
    size, optimizer = next(_UNSEEN)
    options = (f"batch-size={size}", f"seq-len={size}", f"optimizer={optimizer}")
    return [f"--coloc-{option}" for option in options]


def shared(cluster: Cluster, node: str) -> list[int]:
    """Shards in use on each device of a node, as Slurm shows it."""
    return [device.shards_used for device in cluster.use(node)]


def runs(cluster: Cluster, job_id: int, count: int, user: str = "ada") -> list[dict[str, Any]]:
    """The first ``count`` runs of a job as its owner sees them on the login node, once ended."""

    def ended() -> list[dict[str, Any]] | None:
        told = cluster.coloc("explain", str(job_id), user=user)["runs"]
        done = [run for run in told if run["outcome"]]
        return done if len(done) >= count else None

    found = cluster.until(ended, 60, f"colocd has recorded {count} ends of job {job_id}")
    assert isinstance(found, list)
    return found


def test_a_share_is_sized_for_the_cards_of_the_partition(cluster: Cluster) -> None:
    sizes = {}
    for node in CARDS:
        job = cluster.wait(submit(cluster, node), "RUNNING")
        assert job.node == node
        sizes[node] = job.shards
    # At most eight jobs share a card ([pool] max_jobs_per_gpu): the smallest share of a larger
    # card is larger.
    assert 39 / 8 <= sizes["g1"] < sizes["g2"]
    assert sizes["g2"] >= 79 / 8


@pytest.mark.needs_slurm("23.11", "shows no use per device")
@pytest.mark.parametrize("node", ["g1", "g2"])
def test_first_fit_fills_a_card_before_the_next(cluster: Cluster, node: str) -> None:
    first = cluster.wait(submit(cluster, node), "RUNNING")
    per_gpu = CARDS[node][1]
    fit = per_gpu // first.shards
    jobs = [submit(cluster, node, user=cluster.users[i % 2]) for i in range(fit)]
    devices = [cluster.wait(job, "RUNNING").device for job in jobs]
    assert devices == [0] * (fit - 1) + [1]
    rest = [0] * (len(cluster.use(node)) - 2)
    assert shared(cluster, node) == [fit * first.shards, first.shards, *rest]


@pytest.mark.needs_slurm("23.11", "puts whole-GPU and shard jobs on one device")
def test_a_whole_gpu_and_a_share_never_meet(cluster: Cluster) -> None:
    share = cluster.wait(submit(cluster, "g2"), "RUNNING")
    whole = cluster.sbatch("-p", "h100", "--gres=gpu:1", "--mem=50", wrap="sleep 600", user="ben")
    assert cluster.wait(whole, "RUNNING").device == 1
    assert cluster.use("g2") == [Device(share.shards, 79, False), Device(0, 79, True)]
    second = cluster.sbatch("-p", "h100", "--gres=gpu:1", "--mem=50", wrap="sleep 600", user="ben")
    cluster.until(lambda: cluster.job(second).reason == "Resources", 30, "the second waits")
    cluster.run(["scancel", str(share.id)], user="ada")
    assert cluster.wait(second, "RUNNING").device == 0


@pytest.mark.parametrize("node", ["g1", "g2"])
def test_out_of_memory_on_a_node_comes_back_at_last_on_a_whole_gpu(
    cluster: Cluster, node: str, record_property: Any
) -> None:
    _, per_gpu, lie_mib = CARDS[node]
    neighbour = submit(cluster, node, wrap=train(memory_mib=4000, smact=0.3, work_s=900))
    cluster.wait(neighbour, "RUNNING")
    cluster.until(lambda: "step " in cluster.output(neighbour), 30, "the neighbour has its memory")
    lie = train(memory_mib=lie_mib, smact=0.5, work_s=2)
    liar = submit(cluster, node, *another_model(), wrap=lie)
    assert 0 < cluster.job(liar).shards < per_gpu
    cluster.until(lambda: cluster.job(liar).restarts == 2, 120, "more memory did not do")
    job = cluster.wait(liar, "COMPLETED", timeout=120)
    whole = f"shard:{per_gpu}" if cluster.release < (23, 11) else "gpu:1"
    assert job.tres_per_node.endswith(whole)
    assert cluster.job(neighbour).state == "RUNNING"

    seen = runs(cluster, liar, 3)
    assert [run["outcome"] for run in seen] == ["oom-gpu", "oom-gpu", "completed"]
    assert seen[0]["share_mib"] + 5120 <= seen[1]["share_mib"] < per_gpu * 1024
    assert {run["node"] for run in seen} == {node}
    gap = seen[1]["start_s"] - seen[0]["end_s"]
    record_property("seconds from the end to the next start", gap)
    print(f"{node}: started again {gap:g} s after its end")
    # start_after_s is 5; Slurm alone would wait two minutes.
    assert gap < 30
    # One log, both runs: the first was not truncated.
    assert "out of memory" in cluster.output(liar).lower()
    assert "done" in cluster.output(liar)

    columns = ("State", "Account", "AllocTRES")
    told = cluster.until(
        lambda: found if len(found := cluster.sacct(liar, *columns)) == 3 else None,
        30,
        "sacct has all runs",
    )
    assert {run["Account"] for run in told} == {"physics"}
    assert {run["State"] for run in told[:2]} <= {"FAILED", "REQUEUED"}
    assert told[2]["State"] == "COMPLETED"
    assert "gres/shard=" in told[0]["AllocTRES"]
    last = "gres/gpu=1" if cluster.release >= (23, 11) else f"gres/shard={per_gpu}"
    assert last in told[2]["AllocTRES"]
    # Its billing stays that of the share: Slurm (24.11, 26.05) works it out once a job, and no
    # update of a requeued job makes it do so again.


def test_exit_1_is_left_alone(cluster: Cluster) -> None:
    job = submit(cluster, "g2", wrap=train(memory_mib=2000, smact=0.1, work_s=0.3, exit_code=1))
    cluster.wait(job, "FAILED")
    run = runs(cluster, job, 1)[0]
    assert (run["outcome"], run["verdict"]) == ("failed", "not-ours")
    time.sleep(3)  # longer than a recovery takes to begin
    assert cluster.job(job).restarts == 0
    [entry] = cluster.sacct(job, "State", "ExitCode")
    assert entry == {"State": "FAILED", "ExitCode": "1:0"}


def test_a_user_sees_his_jobs_from_the_login_node(cluster: Cluster) -> None:
    mine = submit(cluster, "g1", user="ada")
    theirs = submit(cluster, "g2", user="ben")
    for job in (mine, theirs):
        cluster.wait(job, "RUNNING")

    def listed(user: str) -> set[int]:
        return {row["job_id"] for row in cluster.coloc("jobs", user=user)["jobs"]}

    cluster.until(lambda: mine in listed("ada"), 30, "ada's job is listed")
    assert theirs in cluster.until(lambda: listed("ben"), 30, "ben's job is listed")
    told = cluster.coloc("explain", str(mine), user="ada")
    assert told["runs"][0]["node"] == "g1"
    for job in (mine, theirs):
        cluster.run(["scancel", str(job)])
    assert runs(cluster, mine, 1)[0]["outcome"] == "cancelled"
    past = cluster.coloc("history", user="ada")["runs"]
    assert mine in {row["job_id"] for row in past}
