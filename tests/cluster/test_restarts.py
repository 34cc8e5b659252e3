# SPDX-License-Identifier: Apache-2.0
"""slurmctld killed, restarted, reconfigured or cleared with jobs in every state."""

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import ask, coloc, shards, until
from tests.cluster.rules import QUIET, fresh, liar, on_whole_gpu, outcomes, starts, told

QUICK = {"daemon": {"idle_s": 1.0}}


def restart(lab: Lab, clear: bool = False) -> None:
    """slurmctld by kill -9 and up again; ``clear``: with -c, and with the file of its last job id
    lost too, as on a new head node: then ids start again (-c alone counts on)."""
    lab.daemon("slurmctld").kill()
    for path in (lab.dir / "state").glob("job_state*") if clear else ():
        path.unlink()
    command = lab.commands["slurmctld"]
    lab.start("slurmctld", replace(command, argv=[*command.argv, "-c"]) if clear else command)
    lab.commands["slurmctld"] = command
    lab.wait_daemon("slurmctld")


def answers(lab: Lab, job_id: int) -> dict[str, str]:
    """The job, from a slurmctld that may just be starting."""
    return until(lambda: _job(lab, job_id), 30, "slurmctld answers")


def _job(lab: Lab, job_id: int) -> dict[str, str]:
    done = lab.run(["scontrol", "show", "job", str(job_id)], check=False)
    return lab.job(job_id) if done.returncode == 0 else {}


def ends(lab: Lab, job_id: int) -> dict[str, str]:
    """Poll until the job has completed, whatever slurmctld does meanwhile."""
    job: dict[str, str] = {}

    def there() -> bool:
        job.update(_job(lab, job_id))
        return job.get("JobState") == "COMPLETED"

    until(there, 120, f"job {job_id} has completed")
    return job


@pytest.mark.smoke
@pytest.mark.timeout(300)
def test_jobs_in_every_state(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(machine="1xa100-40gb", users=1, settings=QUICK)
    me = fresh(lab)
    held = me.submit(*QUIET, "--hold", "--output=h.log", script=liar("false"))
    # These two end while slurmctld is away. An end in the seconds before a kill -9 it would forget,
    # and show the job as running until the node registers again.
    running = me.submit(*QUIET, "--output=r.log", script=liar("true", 12, 1))
    steady = me.submit(*QUIET, "--output=s.log", script=liar("false", 0, 12))
    done = me.submit(*QUIET, "--output=d.log", script=liar("false"))
    lab.wait(done, "COMPLETED", 30)
    lab.wait(running, "RUNNING")
    lab.wait(steady, "RUNNING")
    begins = me.submit(*QUIET, "--begin=now+12", "--output=b.log", script=liar("false"))
    before = {job: lab.job(job) for job in (held, running, steady, begins)}
    time.sleep(6)  # slurmctld saves its state every 5 s: what is younger dies with it, not ours
    lab.daemon("slurmctld").kill()
    lab.colocd.kill()
    lab.colocd.start()  # it finds no slurmctld
    restart(lab)
    for job, shown in before.items():
        assert answers(lab, job)["AdminComment"] == shown["AdminComment"]
        assert shards(answers(lab, job)) == shards(shown)
    lab.run(["scontrol", "reconfigure"])
    lab.colocd.kill()
    lab.colocd.start()
    assert answers(lab, held)["Priority"] == "0"
    lab.run(["scontrol", "release", str(held)], user=me.user)
    jobs = {job: ends(lab, job) for job in (held, running, steady, begins, done)}
    assert on_whole_gpu(jobs[running])
    assert {job: shown["Restarts"] for job, shown in jobs.items()} == {
        job: "1" if job == running else "0" for job in jobs
    }
    assert all(number == 1 for number in starts(me).values()), "a run was doubled"
    until(lambda: ask(lab, op="status")["open_runs"] == 0, 30, "everything is closed")
    assert outcomes(me, running) == ["oom-gpu", "completed"]
    for job in (held, steady, begins, done):
        assert outcomes(me, job) == ["completed"]
    assert ask(lab, op="status")["open_work"] == 0


STEPS = {
    "ended": "outcome=oom-gpu",
    "requeue-hold": "step=requeue-hold",
    "done": "result=done",
}


def logged(lab: Lab, job_id: int, words: str) -> bool:
    """Whether colocd has told so of the job."""
    lines = lab.log_file("colocd", ".out").read_text(errors="replace").splitlines()
    return any(f"jobid={job_id} " in line and words in line for line in lines)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("step", list(STEPS))
def test_killed_between_the_steps_of_a_recovery(make_lab: Callable[..., Lab], step: str) -> None:
    """slurmctld forgets what it had not saved; a recovery that was lost so is done again."""
    lab = make_lab(machine="1xa100-40gb", users=1, settings=QUICK)
    me = fresh(lab)
    # slurmctld saves its state every 5 s: a job that is younger it loses altogether. One that it
    # remembers as running and that started less than 20 s before its node registers (both
    # BatchStartTimeout and MessageTimeout count) it takes to be starting still, for half an hour.
    job_id = me.submit(*QUIET, "--output=o.log", script=liar("true", 25, 1))
    deadline = time.monotonic() + 60
    while not logged(lab, job_id, STEPS[step]):
        assert time.monotonic() < deadline, f"{step} of job {job_id}"
        time.sleep(0.005)
    restart(lab)
    if step == "ended":
        lab.colocd.kill()
        lab.colocd.start()
    job = ends(lab, job_id)
    assert on_whole_gpu(job), job
    until(lambda: outcomes(me, job_id) == ["oom-gpu", "completed"], 30, "both runs are told")
    assert job["Restarts"] == "1", job
    assert ask(lab, op="status")["open_work"] == 0


MORE = {
    "ended": "outcome=oom-gpu",
    "requeue-hold": "step=requeue-hold",
    "set-gres": "step=set-gres",
    "raise": "step=raise",
}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("step", list(MORE))
def test_killed_in_a_step_of_more_memory(make_lab: Callable[..., Lab], step: str) -> None:
    """colocd dies between two steps of a recovery that asks for more shards: it is asked for once,
    and not for twice as much."""
    lab = make_lab(machine="1xa100-40gb", users=1, settings=QUICK)
    me = fresh(lab)
    job_id = me.submit(*QUIET, wrap=me.train(memory_mib=7000, smact=0.1, work_s=1))
    before = shards(lab.job(job_id))
    deadline = time.monotonic() + 60
    while not logged(lab, job_id, MORE[step]):
        assert time.monotonic() < deadline, f"{step} of job {job_id}"
        time.sleep(0.005)
    lab.colocd.kill()
    lab.colocd.start()
    job = ends(lab, job_id)
    assert (job["Restarts"], on_whole_gpu(job)) == ("1", False)
    assert before + 5 <= shards(job) < before + 10
    until(lambda: outcomes(me, job_id) == ["oom-gpu", "completed"], 60, "both tries are told")
    assert ask(lab, op="status")["open_work"] == 0


@pytest.mark.smoke
@pytest.mark.timeout(240)
def test_a_cleared_slurmctld(make_lab: Callable[..., Lab]) -> None:
    """slurmctld -c: the history stays, what was open is closed as gone, ids mean new jobs."""
    lab = make_lab(machine="1xa100-40gb", users=1, settings=QUICK)
    me = fresh(lab)
    first = me.submit(*QUIET, "--output=f.log", script=liar("false"))
    lab.wait(first, "COMPLETED", 30)
    until(lambda: outcomes(me, first) == ["completed"], 20, "recorded")
    waits = me.submit(*QUIET, "--hold", "--output=w.log", script=liar("false"))
    oom = me.submit(*QUIET, "--output=o.log", script=liar("true", 1))
    until(lambda: outcomes(me, waits) == [None], 20, "colocd follows it")
    lab.daemon("colocd").stop()  # the recovery is planned and not begun
    lab.wait(oom, "FAILED", 60)
    lab.daemon("slurmctld").kill()
    lab.colocd.cont()
    restart(lab, clear=True)
    until(lambda: ask(lab, op="status")["open_runs"] == 0, 60, "open runs are closed")
    until(lambda: ask(lab, op="status")["open_work"] == 0, 60, "open work is closed")
    kept = {run["job_id"]: run["outcome"] for run in coloc(lab, "history", user=me.user)["runs"]}
    assert kept[first] == "completed"
    assert kept[waits] == "gone"
    # The ids start again: the new first job is a job of its own, with a share of its own.
    again = me.submit(*QUIET, "--output=n.log", script="#!/bin/bash\nexit 1\n")
    assert again == first
    lab.wait(again, "FAILED", 60)
    until(lambda: outcomes(me, again)[-1] is not None, 90, "recorded")
    assert outcomes(me, again)[-1] == "failed", "another job's report was taken for its own"
    runs = [run for run in coloc(lab, "history", user=me.user)["runs"] if run["job_id"] == first]
    assert sorted(run["outcome"] for run in runs) == ["completed", "failed"]
    assert "ran out of GPU memory" not in told(me, again)
