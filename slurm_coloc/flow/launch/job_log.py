# SPDX-License-Identifier: Apache-2.0
"""Stage launch and finish: what a hook knows for expanding the patterns of a job's log."""

import os

from slurm_coloc.adapters import hookenv
from slurm_coloc.core.slurm import log_path


def log_facts(job: hookenv.HookJob, step: bytes | None = None) -> log_path.LogFacts:
    """What is known for expanding the job's log patterns.

    ``step`` is the content of <run_dir>/<job id>.step, which the SPANK plugin writes in slurmstepd
    because Prolog and Epilog are not told: "MASTER TASK" or "none" on the first line, then the
    job's name where it has one.
    """
    first, newline, name = (step or b"").partition(b"\n")
    numbers = [int(word) for word in first.split() if word.isdigit() and len(word) <= 10]
    is_task = len(numbers) == 2
    return log_path.LogFacts(
        job_id=job.job_id,
        user=job.user,
        work_dir=job.work_dir,
        hosts=tuple(dict.fromkeys((_short_host(), job.node))),
        array=(numbers[0], numbers[1]) if is_task else None,
        array_known=is_task or first == b"none",
        job_name=os.fsdecode(name.removesuffix(b"\n")) if newline and name else None,
    )


def _short_host() -> str:
    return os.uname().nodename.partition(".")[0]
