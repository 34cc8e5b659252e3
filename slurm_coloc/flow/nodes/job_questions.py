# SPDX-License-Identifier: Apache-2.0
"""In colocd: what Slurm shows of the jobs that nodes speak about.

A Prolog waits half a second, and an array may start a hundred tasks in that time. If colocd asked
about one after the other, two at a time (adapters/slurm/gate), the last of them would get no
answer. So all that wait for their turn are asked about in one question.
"""

import asyncio
from asyncio import Future
from collections.abc import Mapping

from slurm_coloc.adapters.slurm import SlurmClient
from slurm_coloc.adapters.slurm.gate import AT_ONCE
from slurm_coloc.core.slurm.job import JobView

# A question about so many jobs or more makes slurmctld show all that it has; fewer are asked for
# one by one, which costs it less.
TOGETHER = 3


class JobQuestions:
    """Asks slurmctld about many jobs in few questions."""

    def __init__(self, slurm: SlurmClient) -> None:
        self._slurm = slurm
        self._waiting: dict[int, Future[JobView | None]] = {}
        self._questions: set[asyncio.Task[None]] = set()

    async def job(self, job_id: int) -> JobView | None:
        """The job as slurmctld shows it after this call; None where it knows none. Raises
        SlurmError."""
        if job_id not in self._waiting:
            self._waiting[job_id] = asyncio.get_running_loop().create_future()
        found = self._waiting[job_id]
        self._go_on()
        # Several nodes of a job may wait for one answer: one that leaves ends it for none.
        return await asyncio.shield(found)

    def _go_on(self) -> None:
        while self._waiting and len(self._questions) < AT_ONCE:
            together = len(self._waiting) >= TOGETHER
            ids = [*self._waiting] if together else [next(iter(self._waiting))]
            asked = {job_id: self._waiting.pop(job_id) for job_id in ids}
            task = asyncio.create_task(self._question(asked))
            self._questions.add(task)
            task.add_done_callback(self._answered)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._questions.discard(task)
        self._go_on()

    async def _question(self, asked: dict[int, Future[JobView | None]]) -> None:
        views: Mapping[int, JobView | None]
        try:
            if len(asked) == 1:
                views = {job_id: await self._slurm.job(job_id) for job_id in asked}
            else:
                views = await self._slurm.jobs(asked)
        except Exception as err:
            for future in asked.values():
                future.set_exception(err)
                future.exception()  # whoever asked may have left: no word of it then
            return
        for job_id, future in asked.items():
            future.set_result(views.get(job_id))
