# SPDX-License-Identifier: Apache-2.0
"""A thousand jobs at once: none is lost, every decision is recorded, every wait has its reason."""

from collections import Counter

import pytest

from tests.cluster.jobs import mlp_summary
from tests.compose import burst as bursts
from tests.compose.cluster import Cluster

JOBS = 1000
# What Slurm says of a job that waits its turn, and of one whose tasks it has not looked at yet.
WAITING = {"Resources", "Priority"}

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]


def all_waits_explained(cluster: Cluster) -> list[bursts.Queued] | None:
    """The queue, once the scheduler has looked at every job in it."""
    queue = bursts.queue(cluster)
    waits = {one.reason for one in queue if one.state == "PENDING"}
    return queue if waits <= WAITING else None


def test_a_thousand_submissions(cluster: Cluster) -> None:
    done = bursts.burst(cluster, JOBS // len(cluster.users))
    assert len(set(done.ids)) == JOBS

    queue = cluster.until(lambda: all_waits_explained(cluster), 300, "all waits are explained")
    assert sorted(one.job for one in queue) == sorted(done.ids), "a job is missing in squeue"
    states = Counter(one.state for one in queue)
    assert set(states) <= {"PENDING", "RUNNING", "CONFIGURING"} and states["RUNNING"] > 6, states

    # A machine under load may answer the hook too late: a whole GPU then, said in the mark, and the
    # breaker leaves colocd alone for some seconds. How many is a figure; it says nothing of a loss.
    late = [one for one in queue if one.decision == bursts.NO_DECISION]
    assert not any("shard" in one.tres for one in late), late
    assert len(late) <= JOBS // 2, f"{len(late)} jobs without an answer of colocd"
    ours = {one.decision: one.job for one in queue if one not in late}
    assert len(ours) == JOBS - len(late) and "" not in ours, "a decision for each job"
    cluster.until(lambda: ours.items() <= bursts.decisions(cluster).items(), 300, "all recorded")
    runs = cluster.coloc("history", "--limit", str(JOBS), on="controller")["runs"]
    assert set(ours.values()) - {run["job_id"] for run in runs} == set()

    figures = done.told(cluster, bursts.hook_ms(cluster, ours))
    print(f"burst: {figures}; {dict(states)}; {len(late)} without an answer in time")
    cluster.clear(timeout=300)
    words = ["sacct", "-n", "-P", "-X", "-D", "--allusers", "-o", "JobID,AdminComment,State"]

    def accounted() -> bool:
        text = cluster.run([*words, "-j", ",".join(map(str, done.ids))], on="controller").stdout
        rows = [line.split("|") for line in text.splitlines()]
        assert len(rows) <= JOBS, "a job is there twice"
        marked = {mark[1]: int(row[0]) for row in rows if (mark := bursts.MARK.search(row[1]))}
        ended = [row for row in rows if row[2].startswith("CANCELLED")]
        return ours.items() <= marked.items() and len(ended) == JOBS

    cluster.until(accounted, 300, "slurmdbd has every job once, with its mark, and its end")


def test_an_array_of_a_thousand(cluster: Cluster) -> None:
    cluster.put("/home/ada/burst.txt", mlp_summary(60), user="ada")
    words = ["--coloc=burst.txt", "--gpus=1", "--mem=10", "-o", "/dev/null", f"--array=1-{JOBS}"]
    array = cluster.sbatch(*words, wrap="sleep 900")
    queue = cluster.until(lambda: all_waits_explained(cluster), 300, "all waits are explained")
    assert [one.job for one in queue] == [array] * JOBS
    [decision] = {one.decision for one in queue}
    recorded = cluster.until(lambda: bursts.decisions(cluster).get(decision), 120, "recorded")
    assert array <= recorded <= array + JOBS, "that of one of the tasks"
    states = Counter(one.state for one in queue)
    print(f"burst: array of {JOBS} on Slurm {cluster.version}: {dict(states)}")
    assert states["RUNNING"] > 6
    cluster.clear(timeout=300)
