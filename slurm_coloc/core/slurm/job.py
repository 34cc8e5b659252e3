# SPDX-License-Identifier: Apache-2.0
"""A job as Slurm shows it at one time, its name for scontrol, and the mark of its decision.

The mark in AdminComment ties a job to its decision: the hook runs before a job has an id. Only the
super user may change AdminComment, so the mark can be trusted there and nowhere else. Form:
``coloc:1:<decision>:<action>:<reason>:<shards>``.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slurm_coloc.core.slurm.gres import gpu_request
from slurm_coloc.core.slurm.jobstats import PREFIX, unpacked

TERMINAL = frozenset(
    {
        "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "PREEMPTED",
        "BOOT_FAIL", "DEADLINE", "REVOKED",
    }
)  # fmt: skip


# The reason of a job that was put back in a hold, until it is released. If its owner holds it too
# in that time, Slurm does not show it (tried on 22.05 and 24.11), so our release ends both holds.
REQUEUED_HELD = "job requeued in held state"
# In place of a decision id: colocd left the job alone, or (etc/coloc.lua) did not answer.
NO_DECISION = "000000000000"
# Reason in the mark of a job that went as submitted because colocd only observes.
OBSERVED = "observe"
#: Its name in a document of jobstats' form.
MARK = "coloc"
# Other programs may keep what is theirs beside it, with whatever between.
_MARK = re.compile(r"(?:^|[;,|\s])coloc:1:([0-9a-f]{12}):([a-z]+):([a-z0-9-]+):(\d+)(?=$|[;,|\s])")


@dataclass(frozen=True, slots=True)
class Mark:
    """The content of a mark; ``action`` and ``reason`` as written, by whatever release."""

    decision: str
    action: str
    reason: str
    shards: int


def comment_with(existing: str | None, mark: Mark) -> str:
    """A site's own comment kept, ours appended."""
    text = f"coloc:1:{mark.decision}:{mark.action}:{mark.reason}:{mark.shards}"
    return f"{existing}; {text}" if existing else text


def mark_in(comment: str) -> Mark | None:
    """The mark in an AdminComment; the last one counts. None where there is none."""
    document = unpacked(comment) if comment.startswith(PREFIX) else None
    found = _MARK.findall(comment if document is None else str(document.get(MARK, "")))
    if not found:
        return None
    decision, action, reason, shards = found[-1]
    return Mark(decision, action, reason, int(shards))


def decision_in(comment: str) -> str | None:
    """The decision id in an AdminComment. None where there is none, colocd made none, or it was
    made in observe mode: nothing follows from that for the job."""
    found = mark_in(comment)
    if found is None or found.decision == NO_DECISION or found.reason == OBSERVED:
        return None
    return found.decision


def observed_in(comment: str) -> str | None:
    """The id of a decision of observe mode in an AdminComment; None for any other."""
    found = mark_in(comment)
    return found.decision if found and found.reason == OBSERVED else None


@dataclass(frozen=True, slots=True)
class _Job:
    """The fields that slurmctld and slurmdbd share. ``state`` is Slurm's base word; times are Unix
    seconds (None: unknown), ``exit_code`` and ``signal`` those of the batch script."""

    job_id: int
    state: str
    restarts: int = 0
    uid: int = -1
    account: str = ""
    partition: str = ""
    qos: str = ""
    nodes: str = ""
    admin_comment: str = ""
    exit_code: int = 0
    signal: int = 0
    submit_s: float | None = None
    start_s: float | None = None
    end_s: float | None = None
    array_job_id: int | None = None
    array_task: str | None = None

    @property
    def decision(self) -> str | None:
        """The id of its decision; None where colocd made none."""
        return decision_in(self.admin_comment)

    @property
    def task(self) -> tuple[int, int] | None:
        """The array and the number of a task that has a record of its own; None for any other. The
        tasks that have not begun share one record, under the array's id, which is later the last
        one's: its number stands for the first of them until then."""
        index = self.array_task or ""
        if self.state == "PENDING" and self.restarts == 0 and self.job_id == self.array_job_id:
            return None
        if not self.array_job_id or not (index.isascii() and index.isdigit()):
            return None
        return self.array_job_id, int(index)


@dataclass(frozen=True, slots=True)
class JobView(_Job):
    """One job as slurmctld shows it. ``completing``: its COMPLETING flag.

    ``dependency`` is Slurm's own text (``afterok:7(unfulfilled)``), "" once nothing is waited for.
    ``requeue``: Requeue=1, the job may be put back; ``batch``: it has a script to run again;
    ``requeue_hold``: its flag REQUEUE_HOLD, which a job keeps where Slurm itself put it back, held
    (--requeue=expedite), and loses at once after anybody's `scontrol requeuehold`.
    """

    completing: bool = False
    reason: str = ""
    priority: int = 0
    tres_per_node: str = ""
    tres_per_task: str = ""
    dependency: str = ""
    batch_host: str = ""
    requeue: bool = False
    batch: bool = False
    requeue_hold: bool = False

    @property
    def tres(self) -> str:
        """Its request for GPUs or shards, per node or per task (core/slurm/gres)."""
        return gpu_request(self.tres_per_node, self.tres_per_task)

    @property
    def handle(self) -> str:
        """Its name for scontrol, for this job alone: the id of an array's last task is also that of
        the whole array, so tasks are named ``<array>_<index>``."""
        if self.array_job_id and self.array_task and self.array_task.isdigit():
            return f"{self.array_job_id}_{self.array_task}"
        return str(self.job_id)

    @property
    def ended(self) -> bool:
        """Whether the job is over and its node has been cleaned up."""
        return self.state in TERMINAL and not self.completing

    @property
    def held(self) -> bool:
        """Whether the job waits in a hold; a held job has priority 0 in every release."""
        return self.state == "PENDING" and self.priority == 0

    @property
    def held_by_requeue(self) -> bool:
        """Whether that hold came with a requeue and was not released since."""
        return self.held and self.reason == REQUEUED_HELD

    @property
    def held_by_slurm(self) -> bool:
        """Whether Slurm itself put it back, held: nobody else may be waited for."""
        return self.requeue_hold and self.held_by_requeue and not self.completing


@dataclass(frozen=True, slots=True)
class Terms:
    """The owner's values of a job: nice value, time limit in seconds (None: unlimited),
    reservations ("": none), and Comment."""

    nice: int = 0
    limit_s: float | None = None
    reservation: str = ""
    comment: str = ""


@dataclass(frozen=True, slots=True)
class EndedJob(_Job):
    """One ended job (or run: a requeued job has one each) in slurmdbd; ``CANCELLED by 7`` is
    CANCELLED; ``tres``: what it was allocated (``cpu=2,gres/shard=12,...``)."""

    tres: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """One record of slurmctld's: its name for scontrol, and the tasks in it."""

    handle: str
    tasks: int


def by_record(views: Iterable[JobView]) -> list[Target]:
    """The records of these jobs and tasks, the largest first. All waiting tasks of each record to
    be changed must be among ``views``."""
    records: dict[int, list[JobView]] = {}
    for view in views:
        records.setdefault(view.job_id, []).append(view)
    return sorted(map(_target, records.values()), key=lambda one: -one.tasks)


def _target(tasks: Sequence[JobView]) -> Target:
    """slurmctld keeps the tasks that were never changed in one record. Named together, all of them
    or more, they are updated as one. A part of them it would split into a record each, give a new
    gres to the first only, and still report success (tried on 22.05 and 24.11)."""
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
