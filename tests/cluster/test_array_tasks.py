# SPDX-License-Identifier: Apache-2.0
"""Arrays: after the first task that ran out of GPU memory the waiting ones ask for a whole GPU."""

import time

import pytest

from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import ask, shards, until
from tests.cluster.rules import (
    QUIET,
    fresh,
    liar,
    on_whole_gpu,
    over,
    records,
    starts,
    tasks,
    told,
)

FIRST = '[ "$SLURM_ARRAY_TASK_ID" = 1 ]'


@pytest.mark.timeout(180)
def test_a_thousand_waiting_tasks_are_changed_as_one_record(lab: Lab) -> None:
    """One decision, one update: the untouched rest stays one record of slurmctld's."""
    me = fresh(lab)
    decisions = ask(lab, op="status")["decisions"]
    array = me.submit(
        "--array=1-1000", *QUIET, "--output=/dev/null", "--error=a.log", script=liar(FIRST, 1, 90)
    )
    assert ask(lab, op="status")["decisions"] == decisions + 1

    def changed() -> bool:
        return all(on_whole_gpu(job) for job in records(lab, array))

    until(changed, 60, "every waiting task asks for a whole GPU")
    waiting = records(lab, array)
    rest = max(waiting, key=lambda job: len(job["ArrayTaskId"]))
    assert "-1000" in rest["ArrayTaskId"], rest["ArrayTaskId"]
    assert len(waiting) <= 3, "the rest of the array was split"
    running = records(lab, array, "RUNNING")
    assert running
    assert all(0 < shards(job) < 39 for job in running), "tasks that run are left alone"
    until(lambda: "waiting tasks of the array ask for" in told(me, array), 20, "it is told")
    lab.run(["scancel", str(array)])


@pytest.mark.smoke
@pytest.mark.timeout(180)
def test_held_edited_and_dependent_tasks(lab: Lab) -> None:
    """A hold stays, edits of other things stay, an edited request is left alone."""
    me = fresh(lab)
    gate = lab.sbatch("--hold", wrap="true", user=me.user)
    array = me.submit(
        "--array=1-9%1", *QUIET, "--output=/dev/null", "--error=a.log", script=liar(FIRST, 4, 30)
    )
    until(lambda: records(lab, array, "RUNNING"), 30, "the first task runs")

    def update(user: str | None, *words: str) -> None:
        lab.run(["scontrol", *words], user=user)

    update(me.user, "hold", f"{array}_5")
    update(me.user, "update", f"JobId={array}_6", "TimeLimit=7", "StartTime=now+1hour")
    update(me.user, "update", f"JobId={array}_7", f"Dependency=afterany:{gate}")
    spelled = "gres:shard:3" if lab.release < (23, 11) else "gres/shard:3"
    # An administrator's word.
    update(None, "update", f"JobId={array}_8", f"TresPerNode={spelled}", "StartTime=now+1hour")
    until(
        lambda: all(on_whole_gpu(job) or shards(job) == 3 for job in records(lab, array)),
        60,
        "the waiting tasks are changed",
    )
    alone = tasks(lab, array)
    assert alone[5]["Priority"] == "0", "a hold is its owner's"
    assert on_whole_gpu(alone[5])
    assert alone[6]["TimeLimit"] == "00:07:00"
    assert on_whole_gpu(alone[6])
    assert f"afterany:{gate}" in alone[7]["Dependency"]
    assert on_whole_gpu(alone[7])
    assert shards(alone[8]) == 3
    assert not any(job["Priority"] != "0" for index, job in alone.items() if index == 5)
    lab.run(["scancel", str(array), str(gate)])


@pytest.mark.timeout(180)
def test_no_requeue_stops_the_recovery_not_the_resizing(lab: Lab) -> None:
    me = fresh(lab)
    array = me.submit(
        "--array=1-3%1", "--no-requeue", *QUIET, "--output=/dev/null", "--error=a.log",
        script=liar("true", 1),
    )  # fmt: skip
    until(lambda: over(lab, array), 90, "the array has ended")
    ended = tasks(lab, array)
    assert [ended[index]["Restarts"] for index in (1, 2, 3)] == ["0", "0", "0"]
    assert not on_whole_gpu(ended[1])
    assert on_whole_gpu(ended[3])


@pytest.mark.timeout(240)
def test_colocd_killed_between_outcome_and_resizing(lab: Lab) -> None:
    """Tasks run one at a time, so what was missed would fail and be seen."""
    me = fresh(lab)
    array = me.submit(
        "--array=1-4%1", *QUIET, "--output=/dev/null", "--error=a.log", script=liar("true", 1, 1)
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and ask(lab, op="status")["open_work"] == 0:
        time.sleep(0.02)
    lab.colocd.kill()
    lab.colocd.start()
    until(lambda: over(lab, array), 120, "the array has ended")
    ended = tasks(lab, array)
    assert {job["JobState"] for job in ended.values()} <= {"COMPLETED", "FAILED"}
    assert on_whole_gpu(ended[4])
    assert all(number == 1 for number in starts(me).values()), "a run was doubled"
