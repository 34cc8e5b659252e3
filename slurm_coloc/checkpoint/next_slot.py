# SPDX-License-Identifier: Apache-2.0
"""Say that a checkpoint is there, and ask for the next slot.

Two ways to the requeue. The job does it itself (`scontrol requeue`, which Slurm lets a job's owner
do): that needs no colocd, and no job that depends on this one sees it fail. Where it cannot (a
container without Slurm's commands, a site that forbids it) the job ends with EXIT_CODE and the line
GO_ON: the Epilog reads that line, and colocd puts the job back.

The lines go to standard error, because the log is what the Epilog reads anyway: no file, folder or
daemon that a container would have to bring along. A program in any language may print them.
"""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import NoReturn

from slurm_coloc.checkpoint import ranks

SAVED = "coloc: checkpoint saved"
GO_ON = "coloc: to be continued"
EXIT_CODE = 75  # EX_TEMPFAIL of sysexits.h: try again later
COMMAND_S = 20.0
KILLED_S = 90.0  # Slurm ends the processes of a requeued job; KillWait is 30 s by default


def say(line: str) -> None:
    """One whole line in the log, also beside a progress bar."""
    sys.stdout.flush()
    sys.stderr.write(f"\n{line}\n")
    sys.stderr.flush()


def handle(environ: Mapping[str, str]) -> str:
    """This job for scontrol: a task of an array by its number, for the last task's id is that of
    the whole array; "" outside of a job."""
    array, task = environ.get("SLURM_ARRAY_JOB_ID"), environ.get("SLURM_ARRAY_TASK_ID")
    if array and task:
        return f"{array}_{task}"
    return environ.get("SLURM_JOB_ID", "")


def _requeued(job: str) -> bool:
    argv = ["scontrol", "requeue", job]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as err:
        say(f"coloc: no requeue of its own: {err}")
        return False
    if done.returncode:
        say(f"coloc: no requeue of its own: {done.stderr.strip()[-200:]}")
    return done.returncode == 0


def leave(environ: Mapping[str, str] | None = None) -> NoReturn:
    """Ask for the next slot and end this process; every rank calls it, after the checkpoint is on
    disk. Raises SystemExit, with EXIT_CODE where the program catches it."""
    environ = os.environ if environ is None else environ
    job = handle(environ)
    first = ranks.rank() == 0
    if first and job:
        say(GO_ON)
    if job and (not first or _requeued(job)):
        # The others wait too: an srun whose first task has ended might kill the one that asks.
        time.sleep(KILLED_S if first else COMMAND_S)
    ranks.part_at_exit()
    raise SystemExit(EXIT_CODE)
