# SPDX-License-Identifier: Apache-2.0
"""A job that MPS holds, within its share, meets a GPU that others have filled: whose doing it was,
told by colocd on a real Slurm with MPS on.

Tests have models of their own: one that ran out of memory is remembered.
"""

from collections.abc import Callable
from typing import Any

import pytest

from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import Desk, coloc, desk, shards, until
from tests.cluster.test_blame import FAST, ended
from tests.cluster.test_gate import foreigner

ONE = "1xa100-40gb"
#: its training takes 37,000 MiB within some seconds, whatever it was promised
FILLS = {"memory_mib": 37000, "smact": 0.1, "work_s": 600, "ramp_s": 6}


def begun(lab: Lab, me: Desk) -> tuple[int, str]:
    """A job that MPS holds to its share and that takes its memory slowly; it, and its request."""
    job_id = me.submit("--mem=50", wrap=me.train(memory_mib=4000, smact=0.1, work_s=60, ramp_s=40))
    asked = lab.job(job_id)["TresPerNode"]
    assert shards(lab.job(job_id)) * 1024 > 4000
    until(lambda: "MPS client" in lab.output(job_id), 60, "MPS holds it")
    return job_id, asked


def comes_back(lab: Lab, me: Desk, job_id: int, asked: str) -> None:
    """With the same request, and its model shares as before."""
    run = ended(me, job_id)
    assert (run["outcome"], run["verdict"]) == ("oom-gpu", "requeue-victim")
    # The gate puts it back again while the other one fills the only GPU.
    found = until(
        lambda: job if int((job := lab.job(job_id))["Restarts"]) else None, 60, "it is put back"
    )
    assert found["TresPerNode"] == asked, "not one shard more"
    told = story(me, job_id)
    assert "its own limit" not in told and "nothing of it counts against the job" in told
    later = me.submit("--mem=50", "--hold", wrap="true")
    assert lab.job(later)["TresPerNode"] == asked, "its model is not remembered for it"
    lab.run(["scancel", str(later)])


def story(me: Desk, job_id: int) -> str:
    return " / ".join(line["text"] for line in me.explain(job_id)["story"])


def why(me: Desk, job_id: int) -> dict[str, Any]:
    """The decision of a job."""
    found = me.explain(job_id)["decision"]
    assert isinstance(found, dict)
    return found


@pytest.mark.timeout(240)
def test_the_fenced_victim_of_another_users_job(make_lab: Callable[..., Lab]) -> None:
    """MPS serves one user, so nothing holds the other's job; it is named to both."""
    lab = make_lab(settings=FAST, machine=ONE)
    ada, ben = desk(lab, 180), desk(lab, 181, user=1)
    victim, asked = begun(lab, ada)
    liar = ben.submit("--mem=50", wrap=ben.train(**FILLS))
    run = ended(ada, victim)
    assert run["blame"] == "neighbour" and run["culprit"]["job_id"] == liar
    assert f"job {liar} held" in story(ada, victim)
    comes_back(lab, ada, victim, asked)
    assert "another user's job on the same GPU ran out of memory by it" in story(ben, liar)
    rows = {row["job_id"]: row for row in coloc(lab, "jobs")["jobs"]}
    assert rows[liar]["victims"] == 1
    # Its Prolog may have put that run back meanwhile, and the table of jobs shows the newest.
    (again,) = [
        run
        for run in coloc(lab, "history")["runs"]
        if run["job_id"] == victim and run["restart"] == 1
    ]
    assert again["retry_culprit"] == liar
    assert (
        "held more than its share" in lab.run(["coloc", "report", str(liar)], user=ben.user).stdout
    )
    lab.run(["scancel", str(liar), str(victim)])


@pytest.mark.timeout(240)
def test_a_culprits_model_gets_whole_gpus_for_a_while(make_lab: Callable[..., Lab]) -> None:
    """A job of the same user that is no client of MPS, where the site wants consequences."""
    settings = {**FAST, "blame": {"culprit": "exclusive"}}
    lab = make_lab(settings=settings, machine=ONE)
    me, other = desk(lab, 182), desk(lab, 183)
    victim, asked = begun(lab, me)
    unset = "env -u CUDA_MPS_PIPE_DIRECTORY -u CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
    train = f"{unset} {other.train(**FILLS)}"
    liar = other.submit("--mem=50", wrap=train)
    assert shards(lab.job(liar))
    run = ended(me, victim)
    assert run["blame"] == "neighbour" and run["culprit"]["job_id"] == liar
    comes_back(lab, me, victim, asked)
    assert f"job {victim} on the same GPU ran out of memory by it" in story(other, liar)
    again = other.submit("--mem=50", "--hold", wrap="true")
    assert shards(lab.job(again)) in (0, 39), "before 23.11.5 a whole GPU is all of its shards"
    decision = why(other, again)
    assert decision["reason"] == "held-more"
    assert f"job {liar}, " in decision["why"] and "it does not share" in decision["why"]
    lab.run(["scancel", str(liar), str(victim), str(again)])


@pytest.mark.timeout(240)
def test_the_fenced_victim_of_a_process_of_no_job(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(settings=FAST, machine=ONE)
    me = desk(lab, 184)
    victim, asked = begun(lab, me)
    with foreigner(lab, 37500):
        run = ended(me, victim)
        assert run["blame"] == "foreign"
        assert "processes of no job held 36.6 GiB" in story(me, victim)
        comes_back(lab, me, victim, asked)
    lab.run(["scancel", str(victim)])


@pytest.mark.timeout(240)
def test_a_fenced_job_that_asks_for_more_beside_a_full_neighbour(
    make_lab: Callable[..., Lab],
) -> None:
    """Its own doing, as before: the GPU had room, it met its own fence."""
    lab = make_lab(settings=FAST, machine=ONE)
    me, other = desk(lab, 185), desk(lab, 186)
    beside = other.submit("--mem=50", wrap=other.train(memory_mib=3000, smact=0.1, work_s=300))
    job_id = me.submit("--mem=50", wrap=me.train(memory_mib=9000, smact=0.1, work_s=60, ramp_s=9))
    run = ended(me, job_id)
    assert (run["outcome"], run["blame"], run["verdict"]) == ("oom-gpu", "self", "requeue")
    assert run["culprit"] is None
    lab.run(["scancel", str(beside), str(job_id)])
