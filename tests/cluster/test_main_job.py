# SPDX-License-Identifier: Apache-2.0
"""The main job on a real Slurm: share, wait, run out of memory, come back, finish."""

import dataclasses
from typing import Any

import pytest

from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import Desk, coloc, desk, shards, until

pytestmark = pytest.mark.smoke


def ended(me: Desk, job_id: int, count: int = 1) -> list[dict[str, Any]]:
    """The first ``count`` runs of a job, once colocd has recorded how they ended."""

    def runs() -> list[dict[str, Any]]:
        return [run for run in me.explain(job_id)["runs"] if run["outcome"]]

    until(lambda: len(runs()) >= count, 30, f"colocd has recorded {count} ends of job {job_id}")
    return runs()


def devices(lab: Lab, job_ids: list[int]) -> list[str]:
    """IDX of each running job's GPU as Slurm shows it."""
    return [lab.job(job_id).get("GRES", "") for job_id in job_ids]


def index_of(gres: str) -> str:
    return gres.split("IDX:", 1)[1].split(")")[0] if "IDX:" in gres else gres


def test_three_share_one_gpu_the_next_waits_and_starts_when_there_is_room(lab: Lab) -> None:
    me = desk(lab, 300)
    # Leave one GPU for the test: a whole-GPU job of root takes the other.
    blocker = lab.sbatch("--gres=gpu:1", "--mem=100", wrap="sleep 600")
    lab.wait(blocker, "RUNNING")
    train = me.train(memory_mib=6000, smact=0.2, work_s=600)
    jobs = [me.submit("--mem=100", wrap=train)]
    fit = 39 // shards(lab.job(jobs[0]))
    assert fit >= 3
    jobs += [me.submit("--mem=100", wrap=train) for _ in range(fit)]
    for job_id in jobs[:fit]:
        lab.wait(job_id, "RUNNING")
    assert len({index_of(text) for text in devices(lab, jobs[:fit])}) == 1
    assert lab.wait(jobs[fit], "PENDING")["Reason"] in ("Resources", "Priority", "None")
    lab.run(["scancel", str(jobs[0])])
    lab.wait(jobs[fit], "RUNNING")
    assert lab.job(blocker)["JobState"] == "RUNNING"


def test_three_on_one_gpu_at_once(lab: Lab) -> None:
    me = desk(lab, 310)  # no model of a test that ends its jobs before they were measured
    train = me.train(memory_mib=4000, smact=0.2, work_s=4)
    jobs = [me.submit("--mem=100", wrap=train) for _ in range(3)]
    for job_id in jobs:
        lab.wait(job_id, "RUNNING")
    assert len({index_of(text) for text in devices(lab, jobs)}) == 1
    for job_id in jobs:
        lab.wait(job_id, "COMPLETED", 60)
    history = coloc(lab, "history", user=me.user)["runs"]
    seen = until(
        lambda: (
            {
                run["job_id"]: run["outcome"]
                for run in coloc(lab, "history", user=me.user)["runs"]
                if run["job_id"] in jobs and run["outcome"]
            }.keys()
            >= set(jobs)
        ),
        30,
        "the history has all three",
    )
    assert seen
    assert history


@pytest.mark.needs_slurm("23.11", "puts whole-GPU and shard jobs on one device")
def test_a_whole_gpu_job_never_meets_a_shard_job(lab: Lab) -> None:
    me = desk(lab, 300)
    shared = me.submit("--mem=100", wrap="sleep 60")
    lab.wait(shared, "RUNNING")
    first = lab.sbatch("--gres=gpu:1", "--mem=100", wrap="sleep 60", user=lab.users[1])
    lab.wait(first, "RUNNING")
    assert index_of(lab.job(first)["GRES"]) != index_of(lab.job(shared)["GRES"])
    second = lab.sbatch("--gres=gpu:1", "--mem=100", wrap="sleep 60", user=lab.users[1])
    until(lambda: lab.job(second)["Reason"] == "Resources", 20, "the second waits")
    lab.run(["scancel", str(shared)])
    lab.wait(second, "RUNNING")


def test_an_oom_job_comes_back_with_more_then_on_a_whole_gpu(lab: Lab) -> None:
    me = desk(lab, 200, user=1)
    neighbour = me.submit("--mem=100", wrap=me.train(memory_mib=4000, smact=0.3, work_s=600))
    lab.wait(neighbour, "RUNNING")
    until(lambda: "step " in lab.output(neighbour), 20, "the neighbour holds its memory")
    liar = me.submit("--mem=100", wrap=me.train(memory_mib=38000, smact=0.5, work_s=1))
    before = shards(lab.job(liar))
    assert 0 < before < 39
    until(lambda: int(lab.job(liar)["Restarts"]) == 1, 60, "the job is requeued")
    until(lambda: int(lab.job(liar)["Restarts"]) == 2, 60, "and again")
    job = lab.wait(liar, "COMPLETED", 90)
    whole = "shard:39" if lab.release < (23, 11) else "gpu:1"
    assert job["TresPerNode"].endswith(whole)
    assert job["Requeue"] == "1"
    ended(me, liar, 3)
    told = me.explain(liar)
    assert [run["outcome"] for run in told["runs"]] == ["oom-gpu", "oom-gpu", "completed"]
    assert told["runs"][0]["evidence"]["oom"] is True
    grown = told["runs"][1]["share_mib"] // 1024
    assert before + 5 <= grown < 39
    story = " / ".join(line["text"] for line in told["story"])
    for limit in (before, grown):
        assert f"ran out of GPU memory at its own limit of {limit}.0 GiB, which MPS holds" in story
    assert f"requeue with more memory planned: {grown}.0 GiB" in story
    assert "requeued with more memory" in story
    assert "requeued on a whole GPU" in story
    assert "Priority" in story
    # All runs' words stand in one log: the first was not truncated.
    assert "out of memory" in lab.output(liar).lower()
    assert "done" in lab.output(liar)


def test_the_requeued_job_is_preferred(lab: Lab) -> None:
    me = desk(lab, 200, user=2)
    for index in range(2):  # both GPUs are shared by long jobs: a whole GPU is not free
        hold = me.submit(
            "--mem=100", "--nice=0", wrap=me.train(memory_mib=4000, smact=0.3, work_s=600)
        )
        lab.wait(hold, "RUNNING")
        if index == 0:
            blocker = lab.sbatch("--gres=gpu:1", "--mem=100", wrap="sleep 600")
            lab.wait(blocker, "RUNNING")
    liar = me.submit("--mem=100", wrap=me.train(memory_mib=38000, smact=0.5, work_s=1))
    until(lambda: lab.job(liar)["Restarts"] == "2", 60, "the job needs a whole GPU")
    job = until(
        lambda: found if (found := lab.job(liar))["Priority"] == "100000" else None,
        20,
        "its priority is raised",
    )
    assert job["JobState"] == "PENDING"


@pytest.mark.parametrize(
    ("name", "options", "sbatch", "state", "outcome"),
    [
        ("exit", {"exit_code": 1}, (), "FAILED", "failed"),
        ("caught", {"memory_mib": 9000, "catch_oom": True}, (), "COMPLETED", "completed"),
    ],
)
def test_other_ends_are_not_requeued(
    lab: Lab,
    name: str,
    options: dict[str, object],
    sbatch: tuple[str, ...],
    state: str,
    outcome: str,
) -> None:
    me = desk(lab, 200)
    train = me.train(**{"memory_mib": 2000, "smact": 0.2, "work_s": 0.3, **options})
    job_id = me.submit("--mem=200", *sbatch, wrap=train)
    lab.wait(job_id, state, 60)
    run = ended(me, job_id)[0]
    assert (run["outcome"], run["verdict"]) == (outcome, "not-ours")
    assert lab.job(job_id)["Restarts"] == "0"


def test_cancel_is_not_requeued(lab: Lab) -> None:
    me = desk(lab, 200)
    job_id = me.submit("--mem=100", wrap=me.train(memory_mib=2000, smact=0.2, work_s=600))
    lab.wait(job_id, "RUNNING")
    lab.run(["scancel", str(job_id)], user=me.user)
    lab.wait(job_id, "CANCELLED")
    run = ended(me, job_id)[0]
    assert (run["outcome"], lab.job(job_id)["Restarts"]) == ("cancelled", "0")


def test_host_memory_is_not_taken_for_gpu_memory(lab: Lab) -> None:
    # Slurm kills the job; without cgroups it calls that FAILED by signal 9, with them
    # OUT_OF_MEMORY. The log shows a GPU out-of-memory too, which the program had caught.
    # Root's job: in a container without CAP_SYS_PTRACE Slurm cannot read what others' use.
    me = dataclasses.replace(desk(lab, 200), user=None)
    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    train = me.train(memory_mib=2000, smact=0.2, work_s=60, host_oom=True)
    job_id = me.submit("--mem=200", script=f"#!/bin/bash\necho '{oom}'\nexec {train}\n")
    lab.wait(job_id, ("OUT_OF_MEMORY", "FAILED"), 60)
    run = ended(me, job_id)[0]
    assert run["outcome"] in ("oom-host", "failed")
    assert (run["verdict"], lab.job(job_id)["Restarts"]) == ("not-ours", "0")


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.needs_slurm("23.11", "waits over a minute; once is enough")
def test_timeout_is_not_requeued(lab: Lab) -> None:
    me = desk(lab, 200)
    job_id = me.submit("--mem=100", "--time=0:10", wrap="sleep 300")
    lab.run(["scontrol", "update", f"JobId={job_id}", "TimeLimit=0:01"], check=False)
    lab.wait(job_id, "TIMEOUT", 200)
    run = ended(me, job_id)[0]
    assert (run["outcome"], lab.job(job_id)["Restarts"]) == ("timeout", "0")


def test_no_requeue_means_no_recovery(lab: Lab) -> None:
    me = desk(lab, 250)
    job_id = me.submit(
        "--mem=100", "--no-requeue", wrap=me.train(memory_mib=60000, smact=0.2, work_s=1)
    )
    lab.wait(job_id, "FAILED", 60)
    run = ended(me, job_id)[0]
    assert (run["outcome"], run["verdict"]) == ("oom-gpu", "no-requeue")
    assert lab.job(job_id)["Restarts"] == "0"


def test_a_second_oom_on_the_whole_gpu_is_the_end(lab: Lab) -> None:
    me = desk(lab, 260)
    job_id = me.submit("--mem=100", wrap=me.train(memory_mib=60000, smact=0.2, work_s=1))
    until(lambda: lab.job(job_id)["Restarts"] == "2", 90, "more memory, then a whole GPU")
    lab.wait(job_id, "FAILED", 60)
    runs = ended(me, job_id, 3)
    assert [run["verdict"] for run in runs] == ["requeue", "requeue", "does-not-fit"]
    assert lab.job(job_id)["Restarts"] == "2"
    told = " / ".join(line["text"] for line in me.explain(job_id)["story"])
    assert "this model does not fit this card" in told
    # The next submission of the same model does not try such a share again.
    again = me.submit("--mem=100", "--hold", wrap="true")
    assert shards(lab.job(again)) in (0, 39)
    assert "history-oom" in lab.job(again)["AdminComment"]


def test_another_user_sees_what_squeue_shows_and_no_more(lab: Lab) -> None:
    """Without PrivateData=jobs; with it, see test_network.py."""
    me = desk(lab, 200)
    other = lab.users[1]
    job_id = me.submit("--mem=100", wrap="sleep 60")
    assert me.explain(job_id)["decision"]["features"]["family"]  # known at once
    told = coloc(lab, "explain", str(job_id), user=other)
    assert told["decision"]["features"] == {}
    assert told["decision"]["fingerprint"] is None
    mine = coloc(lab, "jobs", user=other)["jobs"]
    assert job_id not in [job["job_id"] for job in mine]
    everybody = coloc(lab, "jobs", "--all", user=other)["jobs"]
    assert job_id in [job["job_id"] for job in everybody]
