# SPDX-License-Identifier: Apache-2.0
"""Stage recover: the priority of a recovered job in the queue, and how long it is raised.

The work list holds since when a job is raised, so its time ends also while colocd is away; what is
taken back follows from what Slurm shows then.
"""

import time

import structlog

from slurm_coloc.core.records.lists import Recovery
from slurm_coloc.core.recover.recovery import Place, priority_for, settled_priority
from slurm_coloc.core.slurm.admin_comment import decision_in
from slurm_coloc.core.slurm.job import JobView
from slurm_coloc.errors import SlurmError
from slurm_coloc.flow.cluster.context import Context

log = structlog.get_logger()


class PriorityBoost:
    def __init__(self, context: Context) -> None:
        self._recovery = context.config.recovery
        self._store, self._slurm = context.store, context.slurm

    async def fields(self, work: Recovery, view: JobView) -> dict[str, str | int]:
        """Fields of ``scontrol update`` that set the requeued job's priority."""
        recovery, place = self._recovery, _place(work)
        if recovery.raise_by == "priority":
            waiting = await self._slurm.waiting() if place.front else []
            value = priority_for(view, place, recovery.priority, waiting)
            return {} if value is None else {"Priority": value}
        if recovery.raise_by == "nice" and place.front:
            # The owner's value, stored before it is changed.
            nice = work.nice
            if nice is None:
                nice = (await self._slurm.terms(view.handle)).nice
                self._store.recoveries.change(work, nice=nice)
            return {"Nice": nice + recovery.nice}
        if recovery.raise_by == "qos" and recovery.qos and place.front:
            return {"QOS": recovery.qos}
        return {}

    async def round(self) -> None:
        """End the boost of every job whose time is over."""
        before_s = time.time() - self._recovery.raise_for_s
        for work in self._store.recoveries.raised():
            if (work.raised_s or 0.0) > before_s:
                return
            try:
                await self._settle(work)
            except SlurmError as err:
                log.warning("recover", jobid=work.job_id, error=err.message)
                if err.away:
                    return  # slurmctld would not answer the others either
                self._store.recoveries.change(work, raised_s=None)

    async def _settle(self, work: Recovery) -> None:
        view = await self._slurm.job(work.job_id)
        waits = (
            view is not None
            and decision_in(view.admin_comment) == work.decision
            and (view.state, view.restarts) == ("PENDING", work.restart + 1)
            and not view.held  # a release would end its owner's hold
        )
        if view is not None and waits:
            await self._take_back(work, view)
            text = f"waited {self._recovery.raise_for_s:g} s at its raised place: not raised now"
            self._store.note(work.decision, work.job_id, "recover", text)
            log.info("recover", jobid=work.job_id, step="settle", priority=view.priority)
        self._store.recoveries.change(work, raised_s=None)

    async def _take_back(self, work: Recovery, view: JobView) -> None:
        settled = settled_priority(_place(work))
        if self._recovery.raise_by == "nice":
            await self._slurm.update(view.handle, Nice=work.nice or 0)
        elif self._recovery.raise_by == "qos" and work.qos:
            await self._slurm.update(view.handle, QOS=work.qos)
        elif settled is not None:
            await self._slurm.update(view.handle, Priority=settled)
        else:
            # A release computes the priority anew, also of a job that is not held (tried on 22.05).
            await self._slurm.release(view.handle)


def _place(work: Recovery) -> Place:
    return Place(work.front, work.base)
