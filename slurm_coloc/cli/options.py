# SPDX-License-Identifier: Apache-2.0
"""Options that several commands have."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Answer as JSON.")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="Configuration file; default $COLOC_CONFIG.")
]
JobId = Annotated[
    str, typer.Argument(metavar="JOBID", help="Slurm's job id; of an array's task ARRAY_TASK.")
]

_JOB = re.compile(r"([1-9][0-9]{0,9})(?:_([0-9]{1,10}))?", re.ASCII)


def job_of(text: str) -> tuple[int, int | None]:
    """The job id, and the number of an array's task (None: no task). Raises BadParameter."""
    hit = _JOB.fullmatch(text)
    if hit is None:
        raise typer.BadParameter(
            f"{text[:40]!r} is no job id, such as 1234 or 1234_5", param_hint="JOBID"
        )
    return int(hit[1]), int(hit[2]) if hit[2] else None


def job_wanted(text: str) -> dict[str, Any]:
    """The part of a request that names a job. Raises BadParameter."""
    job_id, task = job_of(text)
    return {"job_id": job_id, **({} if task is None else {"array_task": task})}
