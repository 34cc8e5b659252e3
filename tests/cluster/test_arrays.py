# SPDX-License-Identifier: Apache-2.0
"""Which text of which log is a run's: array tasks, logs by the job's name, logs that are shared."""

import re
from itertools import count
from pathlib import Path

import pytest

from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import Desk, ask, desk, shards, until

OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 38.00 GiB. GPU 0 has a total"
    " capacity of 39.39 GiB of which 37.00 GiB is free."
)
# Runs out of memory once, and only where the condition holds.
LIAR = f"""#!/bin/bash
echo "$SLURM_JOB_ID ${{SLURM_ARRAY_TASK_ID:-0}} ${{SLURM_RESTART_COUNT:-0}}" >> runs.txt
if [ "${{SLURM_RESTART_COUNT:-0}}" = 0 ] && CONDITION; then
  echo "{OOM}" >&2
  exit 1
fi
echo fine
"""
QUIET = ("--mem=50",)
# A model that ran out of memory does not share again: each test has its own.
SIZES = count(61)


@pytest.fixture
def me(lab: Lab) -> Desk:
    """A user of the shared lab whose folder holds no log of an earlier test."""
    one = desk(lab, next(SIZES))
    for path in lab.home(one.user).iterdir():
        if path.is_file() and path != one.summary:
            path.unlink()
    return one


def runs(me: Desk) -> list[tuple[int, int, int]]:
    """(job, task, restart) of every start, in order of the numbers."""
    path = me.lab.home(me.user) / "runs.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [tuple(int(word) for word in line.split()) for line in lines]
    return sorted((job, task, restart) for job, task, restart in rows)


def settled(lab: Lab) -> bool:
    counts = ask(lab, op="status")
    busy = lab.run(["squeue", "-h"]).stdout.strip()
    return not busy and counts["open_work"] == counts["open_runs"] == 0


def on_whole_gpu(job: dict[str, str]) -> bool:
    """A whole GPU, on 22.05 all shards of one."""
    return "gpu:" in job["TresPerNode"] or shards(job) == 39


def files_left(lab: Lab, jobs: list[dict[str, str]]) -> list[str]:
    """What the hooks still have of these jobs on the node."""
    ids = {job["JobId"] for job in jobs}
    files = (lab.dir / "nodes/n1/jobs").iterdir()
    return [file.name for file in files if file.name.strip(".").partition(".")[0] in ids]


@pytest.mark.smoke
@pytest.mark.timeout(180)
@pytest.mark.parametrize("log", [None, "arr-%A-%a.log", "%x.%a.log"])
def test_only_the_task_that_ran_out_of_memory_comes_back(me: Desk, log: str | None) -> None:
    lab = me.lab
    script = LIAR.replace("CONDITION", '[ "$SLURM_ARRAY_TASK_ID" = 2 ]')
    output = [f"--output={log}"] if log else []
    master = me.submit("--array=1-3", "--job-name=a b", *QUIET, *output, script=script)
    until(lambda: settled(lab), 120, "the array has ended")
    tasks: dict[int, dict[str, str]] = {}
    for job in lab.jobs():
        if job.get("ArrayJobId") == str(master):
            tasks[int(job["ArrayTaskId"])] = job
    assert sorted(tasks) == [1, 2, 3]
    assert {job["JobState"] for job in tasks.values()} == {"COMPLETED"}, tasks
    assert [int(tasks[task]["Restarts"]) for task in (1, 2, 3)] == [0, 1, 0]
    assert sorted((task, restart) for _, task, restart in runs(me)) == [
        (1, 0),
        (2, 0),
        (2, 1),
        (3, 0),
    ]
    assert on_whole_gpu(tasks[2]), tasks[2]
    assert not on_whole_gpu(tasks[1]) and not on_whole_gpu(tasks[3])
    assert files_left(lab, list(tasks.values())) == []


@pytest.mark.timeout(180)
def test_a_log_by_the_jobs_name(me: Desk) -> None:
    lab = me.lab
    for name in ("other", "another"):
        (lab.home(me.user) / f"{name}.log").write_text("fine\n")
    script = LIAR.replace("CONDITION", "true")
    job_id = me.submit("--output=%x.log", "--job-name=my model", *QUIET, script=script)
    until(lambda: settled(lab), 120, "the job has ended")
    job = lab.job(job_id)
    assert (job["JobState"], job["Restarts"]) == ("COMPLETED", "1"), job
    assert on_whole_gpu(job)
    assert (lab.home(me.user) / "my model.log").exists()


def old_log(me: Desk, text: str) -> Path:
    path = me.lab.home(me.user) / "same.log"
    path.write_text(text)
    path.chmod(0o666)
    return path


@pytest.mark.timeout(180)
def test_an_older_jobs_oom_in_an_appended_log_is_not_this_ones(me: Desk) -> None:
    """The lab has cli_filter.lua, which appends."""
    lab = me.lab
    log = old_log(me, f"an older job\n{OOM}\n")
    job_id = me.submit("--output=same.log", *QUIET, script="#!/bin/bash\necho mine; exit 1\n")
    until(lambda: settled(lab), 60, "the job has ended")
    job = lab.job(job_id)
    assert (job["JobState"], job["Restarts"]) == ("FAILED", "0"), job
    assert re.search(rf"{re.escape(OOM)}\ncoloc: .*\nmine\n\Z", log.read_text())


@pytest.mark.timeout(180)
def test_a_log_that_slurmstepd_cuts_after_the_prolog_is_all_this_runs(me: Desk) -> None:
    """The new text begins as the old one was: by the text alone it looks appended."""
    lab = me.lab
    old_log(me, f"{OOM}\n")
    script = LIAR.replace("CONDITION", "true").replace("exit 1", "echo and more; exit 1")
    job_id = me.submit("--output=same.log", "--open-mode=truncate", *QUIET, script=script)
    until(lambda: settled(lab), 120, "the job has ended")
    job = lab.job(job_id)
    assert (job["JobState"], job["Restarts"]) == ("COMPLETED", "1"), job


def test_no_descriptor_of_roots_is_left_to_the_program(me: Desk) -> None:
    me.submit("--output=fds.txt", *QUIET, wrap="ls -l /proc/self/fd")
    until(lambda: settled(me.lab), 60, "the job has ended")
    text = (me.lab.home(me.user) / "fds.txt").read_text()
    assert "fds.txt" in text
    assert "/jobs/" not in text
