# SPDX-License-Identifier: Apache-2.0
"""Why Slurm put a run back: its node failed, it was preempted, or somebody requeued it.

slurmctld does not keep the cause in the job: slurmdbd does, and without it the node's state tells.
A node that fails takes many jobs with it, so one round asks each of the two once.
"""

from collections.abc import Collection

import structlog

from slurm_coloc.adapters.slurm import SlurmClient
from slurm_coloc.core.records.runs import Run
from slurm_coloc.core.recover.outcome import Outcome
from slurm_coloc.core.slurm.hosts import in_nodes
from slurm_coloc.core.slurm.job import EndedJob, JobView
from slurm_coloc.errors import SlurmError

log = structlog.get_logger()

# How a run that Slurm put back had ended, as slurmdbd keeps it.
CAUSES = {
    "PREEMPTED": Outcome.PREEMPTED,
    "NODE_FAIL": Outcome.NODE_FAIL,
    "REQUEUED": Outcome.REQUEUED,
    "CANCELLED": Outcome.REQUEUED,
}
AT_ONCE = 500  # job ids in one question: it is a command line


def put_back(run: Run, view: JobView | None) -> bool:
    """Whether Slurm shows a later run than ``run``, which had started."""
    return view is not None and run.start_s is not None and view.restarts > run.restart


class Causes:
    """The causes of one round. Slurm's answer, or its silence, holds for all of it."""

    def __init__(self, slurm: SlurmClient, job_ids: Collection[int]) -> None:
        """``job_ids``: the jobs that will be asked about."""
        self._slurm = slurm
        self._job_ids = sorted(set(job_ids))
        self._ended: list[EndedJob] | None = None
        self._down: tuple[str, ...] | None = None
        self._silent = False

    async def of(self, run: Run, view: JobView | None) -> Outcome:
        """Why Slurm shows a later run than ``run``; REQUEUED where that cannot be found out."""
        if not put_back(run, view) or self._silent:
            return Outcome.REQUEUED
        try:
            return await self._from_accounting(run) or await self._from_node(run)
        except SlurmError as err:
            self._silent = True
            log.warning("slurm", jobid=run.job_id, error=err.message)
            return Outcome.REQUEUED

    async def _from_accounting(self, run: Run) -> Outcome | None:
        if self._ended is None:
            self._ended = await self._accounted()
        found = [
            one.state
            for one in self._ended
            if one.job_id == run.job_id and one.restarts == run.restart
        ]
        return CAUSES.get(found[-1]) if found else None

    async def _accounted(self) -> list[EndedJob]:
        found: list[EndedJob] = []
        try:
            for start in range(0, len(self._job_ids), AT_ONCE):
                found += await self._slurm.accounted(*self._job_ids[start : start + AT_ONCE])
        except SlurmError as err:
            if err.code != "no-accounting":
                raise
        return found

    async def _from_node(self, run: Run) -> Outcome:
        if self._down is None:
            shape = await self._slurm.shape()
            self._down = tuple(node.name for node in shape.nodes if node.down)
        lost = any(in_nodes(run.node or "", name) for name in self._down)
        return Outcome.NODE_FAIL if lost else Outcome.REQUEUED
