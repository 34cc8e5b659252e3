# SPDX-License-Identifier: Apache-2.0
"""Options that several commands have."""

import re
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from slurm_coloc.cli.names import each_of
from slurm_coloc.core.text import printable
from slurm_coloc.errors import ColocError

AsJson = Annotated[bool, typer.Option("--json", help="Answer as JSON.")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="Configuration file; default $COLOC_CONFIG.")
]
JobIds = Annotated[
    str | None,
    typer.Argument(
        metavar="JOBID", help="Slurm's job id; of an array's task 9_2, of several 9_[1-3] or 8,9."
    ),
]

Watch = Annotated[
    float | None,
    typer.Option("--watch", "-w", min=1, max=3600, metavar="SECONDS", help="Again and again."),
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="From then on: 90m, 12h, 3d, 2w, 2026-01-31.",
    ),
]

_AGO = re.compile(r"([0-9]{1,6})([mhdw])", re.ASCII)
_UNIT_S = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def jobs_wanted(text: str) -> list[dict[str, Any]]:
    """The parts of requests that name a job each: 9, 9_2, 9_[1-3]. Raises BadParameter."""
    return [
        {"job_id": job_id, **({} if task is None else {"array_task": task})}
        for job_id, task in each_of(text)
    ]


def one_for_json(wanted: list[dict[str, Any]], as_json: bool) -> list[dict[str, Any]]:
    """``wanted``. Raises BadParameter for several with --json, whose answer is one object."""
    if as_json and len(wanted) > 1:
        raise typer.BadParameter("--json answers for one job", param_hint="JOBID")
    return wanted


def since_s(text: str | None) -> float:
    """A moment as Unix seconds; 0 where none is named. Raises BadParameter."""
    if text is None:
        return 0.0
    if hit := _AGO.fullmatch(text):
        return time.time() - int(hit[1]) * _UNIT_S[hit[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"{text[:40]!r} is no time, such as 12h, 3d or 2026-01-31", param_hint="--since"
        ) from None


def repeated(every_s: float | None, show: Callable[[], None], as_json: bool) -> None:
    """Show once, or, with --watch, until the user ends it; what fails then is told and tried
    again. ``as_json``: stdout has what is shown and nothing else."""
    if every_s is None:
        show()
        return
    try:
        while True:
            if not as_json:
                clear = "\033[H\033[2J" if sys.stdout.isatty() else ""
                now = f"{datetime.now():%Y-%m-%d %H:%M:%S}"
                print(f"{clear}every {every_s:g} s, {now}; Ctrl-C ends it\n")
            try:
                show()
            except ColocError as err:
                print(f"coloc: {printable(err.message)}", file=sys.stderr)
            sys.stdout.flush()
            time.sleep(every_s)
    except KeyboardInterrupt:
        return
