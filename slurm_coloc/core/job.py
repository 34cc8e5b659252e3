# SPDX-License-Identifier: Apache-2.0
"""A job as Slurm shows it at one time."""

from dataclasses import dataclass

TERMINAL = frozenset(
    {
        "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "PREEMPTED",
        "BOOT_FAIL", "DEADLINE", "REVOKED",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class JobView:
    """One job. ``state`` is Slurm's base word; ``completing`` its COMPLETING flag.

    Times are Unix seconds (None: unknown), ``exit_code`` and ``signal`` those of the batch script.
    """

    job_id: int
    state: str
    completing: bool = False
    restarts: int = 0
    uid: int = -1
    reason: str = ""
    exit_code: int = 0
    signal: int = 0
    priority: int = 0
    tres_per_node: str = ""
    admin_comment: str = ""
    partition: str = ""
    nodes: str = ""
    submit_s: float | None = None
    start_s: float | None = None
    end_s: float | None = None
    array_job_id: int | None = None
    array_task: str | None = None

    @property
    def handle(self) -> str:
        """What scontrol must be told to act on this job alone: the id of an array's last task is
        also that of the whole array, so tasks are named ``<array>_<index>``."""
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
