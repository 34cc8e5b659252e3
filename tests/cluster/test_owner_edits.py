# SPDX-License-Identifier: Apache-2.0
"""What the owner of a taken job does with scontrol and scancel, in every state of the job."""

import time
from collections.abc import Iterator

import pytest

from slurm_coloc.lab.lab import Lab
from slurm_coloc.lab.spec import LabSpec
from tests.cluster.conftest import PATIENT_MS, PREFIX, lab_of
from tests.cluster.jobs import Desk, ask, shards, until
from tests.cluster.rules import QUIET, fresh, liar, on_whole_gpu, outcomes, starts, told


@pytest.fixture(scope="module")
def quick_lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A lab whose colocd looks every second, so that what it must not do would be seen soon."""
    with lab_of(
        request,
        LabSpec(
            name=f"{PREFIX}own",
            users=1,
            settings={"daemon": {"idle_s": 1.0}},
            deadline_ms=PATIENT_MS,
        ),
    ) as lab:
        yield lab


@pytest.fixture
def me(quick_lab: Lab) -> Iterator[Desk]:
    yield fresh(quick_lab)
    quick_lab.clear()


def do(me: Desk, *words: str) -> bool:
    """A command of the owner's; whether it was taken."""
    return me.lab.run(list(words), user=me.user, check=False).returncode == 0


def update(me: Desk, job_id: int, *changes: str) -> bool:
    return do(me, "scontrol", "update", f"JobId={job_id}", *changes)


def looks(lab: Lab, seconds: float = 2.5) -> None:
    """Two looks of colocd's at Slurm: time for it to do what it must not."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert ask(lab, op="status")["open_work"] == 0
        time.sleep(0.2)


# command and change, whether it is taken, field and value that the job shows then
PENDING = [
    (("TresPerNode=gres/shard:30",), False, {}),
    (("Gres=shard:1",), False, {}),
    (("AdminComment=coloc:1:000000000000:collocate:fits:1",), False, {}),
    (("TimeLimit=5",), True, {"TimeLimit": "00:05:00"}),
    (("Nice=100",), True, {"Nice": "100"}),
    (("StartTime=now+1hour",), True, {}),
    (("Comment=mine",), True, {"Comment": "mine"}),
    (("JobName=other",), True, {"JobName": "other"}),
]


@pytest.mark.timeout(180)
def test_pending(me: Desk) -> None:
    lab = me.lab
    job_id = me.submit(*QUIET, "--begin=now+2hours", wrap="true")
    before = lab.job(job_id)
    for changes, taken, shown in PENDING:
        assert update(me, job_id, *changes) is taken, changes
        job = lab.job(job_id)
        assert {name: job[name] for name in shown} == shown
        assert job["AdminComment"] == before["AdminComment"]
        assert job["TresPerNode"] == before["TresPerNode"]
    assert not do(me, "scontrol", "requeue", str(job_id)), "Slurm: it is pending"
    assert do(me, "scontrol", "hold", str(job_id))
    looks(lab)
    assert lab.job(job_id)["Priority"] == "0", "a hold is its owner's"
    assert do(me, "scontrol", "release", str(job_id))
    assert do(me, "scancel", str(job_id))
    until(lambda: outcomes(me, job_id) == ["cancelled"], 20, "recorded")


@pytest.mark.timeout(180)
@pytest.mark.parametrize("how", ["requeue", "requeuehold"])
def test_running_and_put_back(me: Desk, how: str) -> None:
    lab = me.lab
    job_id = me.submit(
        *QUIET, "--output=o.log", script='#!/bin/bash\n[ -n "$SLURM_RESTART_COUNT" ] || sleep 100\n'
    )
    before = lab.wait(job_id, "RUNNING")
    until(lambda: me.explain(job_id)["runs"], 20, "colocd follows it")
    assert not update(me, job_id, "TresPerNode=gres/shard:1")
    assert do(me, "scontrol", how, str(job_id))
    lab.wait(job_id, "PENDING", 30)
    until(lambda: outcomes(me, job_id) == ["requeued", None], 20, "two runs")
    if how == "requeuehold":
        looks(lab)
        assert lab.job(job_id)["Priority"] == "0", "a hold is its owner's"
        assert do(me, "scontrol", "release", str(job_id))
    # A start in the second of the last end meets a revoked credential, and Slurm calls it failed.
    update(me, job_id, "StartTime=now+3")
    job = lab.wait(job_id, "COMPLETED", 60)
    assert (shards(job), job["Restarts"]) == (shards(before), "1")
    assert job["AdminComment"] == before["AdminComment"]
    until(lambda: outcomes(me, job_id) == ["requeued", "completed"], 20, "recorded")


@pytest.mark.timeout(180)
def test_suspended_and_cancelled(me: Desk) -> None:
    lab = me.lab
    first = me.submit(*QUIET, "--output=/dev/null", wrap="sleep 3")
    lab.wait(first, "RUNNING")
    lab.run(["scontrol", "suspend", str(first)])  # Slurm gives this to operators alone
    lab.wait(first, "SUSPENDED")
    second = me.submit(*QUIET, "--output=/dev/null", wrap="sleep 100")
    lab.wait(second, "RUNNING")
    until(lambda: outcomes(me, first) == [None] == outcomes(me, second), 20, "both are followed")
    assert do(me, "scancel", str(second))
    lab.run(["scontrol", "resume", str(first)])
    lab.wait(first, "COMPLETED", 30)
    until(lambda: outcomes(me, first) == ["completed"], 20, "recorded")
    until(lambda: outcomes(me, second) == ["cancelled"], 20, "recorded")


@pytest.mark.timeout(180)
def test_ended_and_put_back(me: Desk) -> None:
    """It runs again in its share, and as a run of its own."""
    lab = me.lab
    job_id = me.submit(*QUIET, "--output=/dev/null", wrap="true")
    before = lab.wait(job_id, "COMPLETED", 30)
    until(lambda: outcomes(me, job_id) == ["completed"], 20, "recorded")
    assert not update(me, job_id, "TimeLimit=5"), "Slurm: it has ended"
    assert do(me, "scontrol", "requeue", str(job_id))
    assert update(me, job_id, "StartTime=now+3")
    until(lambda: outcomes(me, job_id) == ["completed", "completed"], 40, "a second run")
    job = lab.job(job_id)
    assert (shards(job), job["Restarts"]) == (shards(before), "1")


@pytest.mark.timeout(180)
def test_edits_survive_a_recovery(me: Desk) -> None:
    lab = me.lab
    job_id = me.submit(*QUIET, "--output=o.log", "--hold", script=liar("true", 1))
    assert update(me, job_id, "TimeLimit=7", "Comment=mine", "JobName=other")
    assert do(me, "scontrol", "release", str(job_id))
    until(lambda: lab.job(job_id)["Restarts"] == "1", 60, "recovered")
    job = lab.wait(job_id, "COMPLETED", 60)
    assert on_whole_gpu(job)
    assert (job["TimeLimit"], job["Comment"], job["JobName"]) == ("00:07:00", "mine", "other")


@pytest.mark.timeout(180)
@pytest.mark.parametrize("how", ["requeue", "requeuehold", "scancel"])
def test_the_owner_was_faster_than_the_recovery(me: Desk, how: str) -> None:
    """colocd is away when the job runs out of memory. Its hold and start stay the owner's."""
    lab = me.lab
    job_id = me.submit(*QUIET, "--output=o.log", script=liar("true", 5))
    until(lambda: outcomes(me, job_id) == [None], 20, "colocd follows it")
    lab.colocd.stop()
    lab.wait(job_id, "FAILED", 60)
    put_back = how if how != "scancel" else "requeuehold"
    assert do(me, "scontrol", put_back, str(job_id))
    if how == "scancel":
        assert do(me, "scancel", str(job_id))
    lab.colocd.cont()
    until(lambda: outcomes(me, job_id)[:1] == ["oom-gpu"], 30, "the first run is closed")
    if how == "scancel":
        until(lambda: lab.job(job_id)["JobState"] == "CANCELLED", 10, "it stays cancelled")
        until(lambda: ask(lab, op="status")["open_work"] == 0, 10, "colocd has seen the end")
        looks(lab)
        assert lab.job(job_id)["JobState"] == "CANCELLED"
        return
    if how == "requeuehold":
        until(lambda: ask(lab, op="status")["open_work"] == 0, 10, "colocd has seen the hold")
        looks(lab)
        assert lab.job(job_id)["Priority"] == "0", "a hold is its owner's"
        assert do(me, "scontrol", "release", str(job_id))
    update(me, job_id, "StartTime=now+2")
    job = lab.wait(job_id, "COMPLETED", 60)
    assert (job["Restarts"], on_whole_gpu(job)) == ("1", True)
    assert all(number == 1 for number in starts(me).values())
    assert "Priority" not in told(me, job_id)
