# SPDX-License-Identifier: Apache-2.0
"""What the tests of awkward requests share: a job that runs out of memory once, and its traces."""

from collections import Counter
from itertools import count

from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import Desk, ask, desk, shards

OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 38.00 GiB. GPU 0 has a total"
    " capacity of 39.39 GiB of which 37.00 GiB is free."
)
# Notes every start; out of memory in the first run where the condition holds.
LIAR = f"""#!/bin/bash
echo "$SLURM_JOB_ID ${{SLURM_ARRAY_TASK_ID:-0}} ${{SLURM_RESTART_COUNT:-0}}" >> runs.txt
if [ "${{SLURM_RESTART_COUNT:-0}}" = 0 ] && CONDITION; then
  sleep BEFORE
  echo "{OOM}" >&2
  exit 1
fi
sleep AFTER
"""
# Slurm ends a job that is seen above its memory, and an srun in it holds 15 MiB.
QUIET = ("--mem=50",)
# A model that ran out of memory does not share again: every test has its own.
_SIZES = count(130)


def liar(condition: str = "true", before: float = 0, after: float = 0) -> str:
    """A script that runs out of memory once, ``before`` seconds after its start."""
    text = LIAR.replace("CONDITION", condition)
    return text.replace("BEFORE", str(before)).replace("AFTER", str(after))


def fresh(lab: Lab, user: int = 0, *, clean: bool = True) -> Desk:
    """A desk with a model of its own; ``clean``: in a folder without an earlier test's files."""
    one = desk(lab, next(_SIZES), user)
    for path in lab.home(one.user).iterdir():
        if clean and path.is_file() and path != one.summary:
            path.unlink()
    return one


def starts(me: Desk) -> Counter[tuple[int, int]]:
    """How often each (job, restart) began."""
    path = me.lab.home(me.user) / "runs.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [line.split() for line in lines]
    return Counter((int(row[0]), int(row[2])) for row in rows)


def on_whole_gpu(job: dict[str, str]) -> bool:
    """A whole GPU, on 22.05 all shards of one."""
    return "gpu:" in job["TresPerNode"] or shards(job) == 39


def over(lab: Lab, *jobs: int) -> bool:
    """Nothing of these jobs and arrays runs or waits, and no recovery is open."""
    named = f"--jobs={','.join(map(str, jobs))}"
    busy = lab.run(["squeue", "-h", named], check=False).stdout.strip()
    return not busy and ask(lab, op="status")["open_work"] == 0


def outcomes(me: Desk, job_id: int) -> list[str | None]:
    """How each run of a job ended as colocd recorded it; None for one that goes on."""
    return [run["outcome"] for run in me.explain(job_id)["runs"]]


def told(me: Desk, job_id: int) -> str:
    """The story of a job in one line."""
    return " / ".join(line["text"] for line in me.explain(job_id)["story"])


def tasks(lab: Lab, array: int) -> dict[int, dict[str, str]]:
    """The records of an array's tasks that stand alone, by index."""
    return {
        int(job["ArrayTaskId"]): job
        for job in lab.jobs()
        if job.get("ArrayJobId") == str(array) and job["ArrayTaskId"].isdigit()
    }


def records(lab: Lab, array: int, state: str = "PENDING") -> list[dict[str, str]]:
    """slurmctld's records of an array in ``state``; one may stand for many tasks."""
    return [
        job
        for job in lab.jobs()
        if job.get("ArrayJobId") == str(array) and job["JobState"] == state
    ]
