# SPDX-License-Identifier: Apache-2.0
"""Names for scontrol of what slurmctld keeps as one record: a job, or many tasks of an array."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slurm_coloc.core.slurm.job import JobView


@dataclass(frozen=True, slots=True)
class Target:
    """One record of slurmctld's: its name for scontrol, and the tasks in it."""

    handle: str
    tasks: int


def by_record(views: Iterable[JobView]) -> list[Target]:
    """The records in which these jobs and tasks stand, the largest first. Of each record that is
    to be changed all waiting tasks must be among ``views``."""
    records: dict[int, list[JobView]] = {}
    for view in views:
        records.setdefault(view.job_id, []).append(view)
    return sorted(map(_target, records.values()), key=lambda one: -one.tasks)


def _target(tasks: Sequence[JobView]) -> Target:
    """slurmctld keeps the tasks that were never touched in one record. Named together, all of them
    or more, they are updated as one; a part of them it would split into a record each, and then
    give a new gres to the first only and say that all went well (tried 22.05 and 24.11)."""
    names = {view.array_task or "" for view in tasks}
    numbers = sorted(int(name) for name in names if name.isdigit())
    if len(numbers) < 2:
        return Target(tasks[0].handle, 1)
    return Target(f"{tasks[0].array_job_id}_[{ranges(numbers)}]", len(numbers))


def ranges(numbers: Sequence[int]) -> str:
    """Sorted numbers as Slurm writes them.

    >>> ranges([1, 2, 3, 7, 9, 10])
    '1-3,7,9-10'
    """
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)
