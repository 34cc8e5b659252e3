# SPDX-License-Identifier: Apache-2.0
"""Jobs as Slurm's commands name them: 9, 9_2, 9_[1-3,7], with commas between them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import typer

MOST = 1000  #: jobs that one list names, as many as an answer has
_JOB = r"([1-9][0-9]{0,9})"
_NUMBERS = r"[0-9]{1,10}(?:-[0-9]{1,10}(?::[0-9]{1,10})?)?"
_NAME = re.compile(
    rf"{_JOB}(?:_(?:([0-9]{{1,10}})|\[({_NUMBERS}(?:,{_NUMBERS})*)(?:%[0-9]+)?\]))?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Names:
    """``jobs``: ids whose runs all count, an array's with its tasks; ``tasks``: (array, task)."""

    jobs: frozenset[int]
    tasks: frozenset[tuple[int, int]]

    def has(self, run: Mapping[str, Any]) -> bool:
        """Whether a run of an answer is of one of them."""
        array, task = run.get("array_job_id"), run.get("array_task")
        return run["job_id"] in self.jobs or array in self.jobs or (array, task) in self.tasks


def each_of(text: str) -> list[tuple[int, int | None]]:
    """Job ids with the number of an array's task (None: no task), in order. Raises BadParameter."""
    found: dict[tuple[int, int | None], None] = {}
    for part in re.split(r",(?![^\[]*\])", text):
        hit = _NAME.fullmatch(part.strip())
        if hit is None:
            raise typer.BadParameter(
                f"{part[:40]!r} is no job, such as 1234, 1234_5 or 1234_[1-3]", param_hint="JOBID"
            )
        job_id = int(hit[1])
        if hit[3]:
            found |= {(job_id, task): None for task in _tasks(hit[3])}
        else:
            found[job_id, int(hit[2]) if hit[2] else None] = None
        if len(found) > MOST:
            raise typer.BadParameter(f"{text[:40]!r} names more than {MOST} jobs")
    return list(found)


def _tasks(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        numbers = range(int(first), int(last or first) + 1, max(1, int(step or 1)))
        found += numbers[: MOST + 1]
    return found


def names_of(text: str) -> Names:
    """The jobs that a list names. Raises BadParameter."""
    each = each_of(text)
    return Names(
        frozenset(job_id for job_id, task in each if task is None),
        frozenset((job_id, task) for job_id, task in each if task is not None),
    )
