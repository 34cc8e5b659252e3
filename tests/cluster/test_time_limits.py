# SPDX-License-Identifier: Apache-2.0
"""Time limits of jobs that share, and --coloc-max-slowdown, on a real Slurm.

Slurm's shortest limit is a minute, and it looks for jobs over their limit about twice a minute: so
several jobs on GPUs of their own go through one test side by side.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import Desk, desk, until
from tests.cluster.rules import told
from tests.cluster.test_slots import share
from tests.cluster.test_steered import gpu, steered, submit

Make = Callable[..., Lab]
# For a steered lab the agents speak less often: its start is waited for by how old their word is.
HEARD: dict[str, Any] = {"slowdown": {"interval_s": 1.0}, "agent": {"window_s": 5, "beat_s": 5}}
OFTEN: dict[str, Any] = {"slowdown": {"interval_s": 1.0}, "agent": {"window_s": 5, "beat_s": 2}}
SHORT = "PartitionName=short Nodes=ALL MaxTime=00:01:00 DefMemPerCPU=1000 State=UP"


def busy(me: Desk, work_s: float = 400) -> str:
    """A training that keeps nearly all of its GPU busy: two of them take 1.8 times as long."""
    return me.train(memory_mib=2000, smact=0.95, work_s=work_s)


def limit(lab: Lab, job: int) -> str:
    return lab.job(job)["TimeLimit"]


def runs_beside(me: Desk, node: str, *args: str, work_s: float = 400) -> int:
    """A busy share on a node, running."""
    job = share(me, f"--nodelist={node}", "--time=1", *args, wrap=f"exec {busy(me, work_s)}")
    me.lab.wait(job, "RUNNING", 60)
    return job


@pytest.mark.timeout(420)
def test_limits_follow_the_slowdown(make_lab: Make) -> None:
    lab = make_lab(
        nodes=4, machine="1xa100-40gb", users=1, slurm_conf_extra=SHORT, settings=OFTEN
    )  # fmt: skip
    me = desk(lab, 300)
    edited, _ = (runs_beside(me, "n3", "--time=3", work_s=300) for _ in range(2))
    # A limit that its owner changes before colocd has seen it is the one that it was given.
    until(lambda: me.explain(edited)["time_limits"], 30, "colocd has seen its limit")
    lab.run(["scontrol", "update", f"JobId={edited}", "TimeLimit=1"], user=me.user)
    both = [runs_beside(me, "n1", work_s=45) for _ in range(2)]
    alone = runs_beside(me, "n2")
    bounded = [runs_beside(me, "n4", "--partition=short") for _ in range(2)]

    # Alone each would have taken 45 s; beside each other more than their minute.
    for job in both:
        until(lambda job=job: limit(lab, job) == "00:02:00", 80, "its limit is stretched")
    for job in both:
        lab.wait(job, "COMPLETED", 120)
        assert "beside others on its GPU" in told(me, job)
        assert "coloc: time limit 60 s is" in lab.output(job)
    shown = lab.run(["coloc", "explain", str(both[0])], user=me.user).stdout
    assert "60 s given, 2 min now" in " ".join(shown.split())
    report = json.loads(lab.run(["coloc", "report", str(both[0]), "--json"], user=me.user).stdout)
    assert report["time_limit"]["set_s"] == 120.0
    shown = lab.run(["coloc", "report", str(both[0])], user=me.user).stdout
    assert "60 s given, 2 min in the end" in " ".join(shown.split())

    lab.wait(alone, "TIMEOUT", 120)
    lab.wait(edited, "TIMEOUT", 120)
    assert limit(lab, edited) == "00:01:00" and "lost" not in told(me, edited)
    for job in bounded:
        lab.wait(job, "TIMEOUT", 120)
        assert limit(lab, job) == "00:01:00"
        assert "stays 60 s: MaxTime of partition short" in told(me, job)
    assert limit(lab, alone) == "00:01:00" and "lost" not in told(me, alone)


@pytest.mark.timeout(300)
def test_put_back_it_begins_with_its_own_limit(make_lab: Make) -> None:
    """And maintenance is not run into: a reservation of the node ends what may be given."""
    lab = make_lab(nodes=2, machine="1xa100-40gb", users=1, settings=OFTEN)
    me = desk(lab, 300)
    job, other = (runs_beside(me, "n1") for _ in range(2))
    kept = [runs_beside(me, "n2") for _ in range(2)]
    start = "starttime=now+30"
    lab.run(["scontrol", "create", "reservation", "reservation=mend", "user=root", start,
             "duration=10", "nodes=n2", "flags=maint,ignore_jobs"])  # fmt: skip
    until(lambda: limit(lab, job) == "00:02:00", 90, "its limit is stretched")
    lab.run(["scontrol", "requeue", str(job)], user=me.user)
    until(lambda: lab.job(job)["Restarts"] == "1", 30, "it is put back")
    until(lambda: limit(lab, job) == "00:01:00", 60, "it has its own limit again")
    assert "60 s again: it starts anew" in told(me, job)
    for one in kept:
        until(
            lambda one=one: "reservation mend allows" in told(me, one), 60, "the reservation counts"
        )
        assert limit(lab, one) == "00:01:00"
    lab.run(["scancel", str(job), str(other), *map(str, kept)])


def told_at_submit(me: Desk, *args: str) -> str:
    """What sbatch says; once more where the machine was too busy for an estimate."""

    def said() -> str:
        words = ["sbatch", "--hold", f"--coloc={me.summary}", "--wrap=true", *args]
        done = me.lab.run(words, user=me.user, check=False)
        return "" if "took too long" in done.stderr else done.stderr

    return str(until(said, 60, "an estimate in time"))


@pytest.mark.smoke
def test_a_bound_that_slurm_cannot_keep(lab: Lab) -> None:
    """Native: a whole GPU where it would surely be broken, else an honest line."""
    me = desk(lab, 300)
    assert "whole GPU: no share can keep" in told_at_submit(me, "--coloc-max-slowdown=1")
    assert "=50 is watched, not kept" in told_at_submit(me, "--coloc-max-slowdown=50")
    assert "is no factor" in told_at_submit(me, "--coloc-max-slowdown=0.9")
    script = "#!/bin/bash\n#SBATCH --coloc-max-slowdown=1\ntrue\n"
    job = me.submit("--hold", script=script)
    assert "shard" not in lab.job(job)["TresPerNode"] or lab.release < (23, 11)


def test_a_slowed_job_is_told(make_lab: Make) -> None:
    """Native: nothing can close its GPU, and it is told so; then that its neighbour has gone."""
    lab = make_lab(users=1, machine="1xa100-40gb", settings=OFTEN)
    me = desk(lab, 300)
    job = share(me, "--coloc-max-slowdown=1.3", wrap=f"exec {busy(me)}")
    lab.wait(job, "RUNNING", 60)
    other = share(me, wrap=f"exec {busy(me)}")
    until(lambda: "nothing keeps others away" in told(me, job), 90, "it is told")
    lab.run(["scancel", str(other)])
    until(lambda: "open to others again" in told(me, job), 60, "its neighbour has left")
    until(lambda: closed(me, job), 30, "coloc explain shows it")


def closed(me: Desk, job: int) -> bool:
    shown: dict[str, Any] = me.explain(job)
    assert shown["decision"]["max_slowdown"] == 1.3
    return bool(shown["time_limits"][0]["others"] == 0)


@pytest.mark.needs_slurm("24.11", "does not change the shards of a waiting job to typed ones")
@pytest.mark.timeout(400)
def test_a_suffering_job_s_gpu_is_closed(make_lab: Make) -> None:
    """Steered: best fit would fill the first GPU; the bound of the job there keeps others away
    while it is slowed down, and no longer."""
    first_fuller = {"policy": "best-fit", "smact_gate": 1.0, "idle_first": False}
    lab = steered(make_lab, first_fuller, tables=HEARD, users=1)
    me = desk(lab, 300)
    first = submit(me, "--coloc-max-slowdown=1.4", wrap=busy(me))
    lab.wait(first, "RUNNING")
    assert gpu(lab, first) == "n1/a100-0"
    # Nobody knows yet how busy it is: by the estimates two of them do no harm.
    second = submit(me, wrap=busy(me))
    lab.wait(second, "RUNNING")
    if gpu(lab, second) == "n1/a100-0":
        until(lambda: "is closed to newcomers" in told(me, first), 120, "its GPU is closed")
    third = until(lambda: elsewhere(lab, me), 60, "another GPU is chosen")
    lab.wait(third, "RUNNING")
    assert gpu(lab, third) == "n1/a100-1", "best fit would have taken the fuller one"
    lab.run(["scancel", str(second)])
    until(lambda: "open to others again" in told(me, first), 90, "its neighbour has left")


def elsewhere(lab: Lab, me: Desk) -> int:
    """A job that was not sent to the first GPU; colocd may have looked before that was closed."""
    job = submit(me)
    if gpu(lab, job) == "n1/a100-1":
        return job
    lab.run(["scancel", str(job)])
    return 0
