# SPDX-License-Identifier: Apache-2.0
"""Stage recover: a recovered job's raised place in the queue, and its end (docs/adr/0016)."""

import time

import structlog

from slurm_coloc.core.records.lists import Recovery
from slurm_coloc.core.records.runs import Key
from slurm_coloc.core.recover.outcome import Outcome
from slurm_coloc.core.recover.recovery import Place, priority_for, settled_priority
from slurm_coloc.core.slurm.job import JobView
from slurm_coloc.errors import SlurmError
from slurm_coloc.flow.cluster.context import Context
from slurm_coloc.flow.recover.retry_limit import MAX_TRIES, counted

log = structlog.get_logger()

# Seconds between two looks at a raised job that is held, or whose change Slurm refused.
LOOK_S = 60.0


class PriorityBoost:
    """Raises recovered jobs in the queue, for a while."""

    def __init__(self, context: Context) -> None:
        self._recovery = context.config.recovery
        self._store, self._slurm = context.store, context.slurm
        self._later: dict[Key, float] = {}  # when (monotonic) the next look is due

    async def fields(self, work: Recovery, view: JobView) -> dict[str, str | int]:
        """Fields of ``scontrol update`` that set the requeued job's priority."""
        recovery, place = self._recovery, _place(work)
        if recovery.raise_by == "priority":
            waiting = await self._slurm.waiting() if place.front else []
            value = priority_for(view, place, recovery.priority, waiting)
            if value is None:  # an earlier recovery's priority may have taken the nice value
                return {"Nice": work.nice} if work.nice else {}
            await self._nice(work, view)
            return {"Priority": value}
        if recovery.raise_by == "nice" and place.front:
            return {"Nice": await self._nice(work, view) + recovery.nice}
        if recovery.raise_by == "qos" and recovery.qos and place.front:
            return {"QOS": recovery.qos}
        return {}

    async def _nice(self, work: Recovery, view: JobView) -> int:
        """The owner's nice value, stored before it is changed: by us, or by Slurm, which makes it 0
        with each priority that is set."""
        if work.nice is None:
            terms = await self._slurm.terms(view.handle)
            self._store.recoveries.change(work, nice=terms.nice)
        return work.nice or 0

    async def round(self) -> None:
        """End the boost of every job whose time is over, or whose time slot is."""
        now, before_s = time.monotonic(), time.time() - self._recovery.raise_for_s
        self._later = {key: at for key, at in self._later.items() if at > now}
        for work in self._store.recoveries.raised():
            late = (work.raised_s or 0.0) <= before_s
            if work.key in self._later or not (late or self._left_its_slot(work)):
                continue
            self._later[work.key] = now + LOOK_S
            why = f"waited {self._recovery.raise_for_s:g} s at its raised place"
            try:
                await self._settle(work, why if late else "it waits again at its time slot's end")
            except SlurmError as err:
                if counted("recover", self._store.recoveries, work, err) >= MAX_TRIES:
                    self._store.recoveries.change(work, raised_s=None)
                if err.away:
                    return  # slurmctld would not answer the others either

    def _left_its_slot(self, work: Recovery) -> bool:
        """Whether the job has run since and waits for its next time slot."""
        if self._store.slots.of(work.decision, work.job_id) is None:
            return False
        runs = [run for run in self._store.runs.of_job(work.job_id) if run.restart > work.restart]
        waits = len(runs) > 1 and runs[-1].open and runs[-1].state == "PENDING"
        return waits and runs[-2].outcome == Outcome.SLOT

    async def _settle(self, work: Recovery, why: str) -> None:
        view = await self._slurm.job(work.job_id)
        newest = self._store.recoveries.of_job(work.decision, work.job_id)[-1]
        raised_s = None
        if view is None or view.decision != work.decision or newest.restart > work.restart:
            pass
        elif view.held and self._recovery.raise_by != "priority":
            return  # seen to again: under priority/basic a nice value would end its owner's hold
        elif view.state == "PENDING" and not view.held:  # a release would end its owner's hold
            await self._take_back(work, view)
            text = f"{why}: not raised now"
            self._store.note(work.decision, work.job_id, "recover", text)
            log.info("recover", jobid=work.job_id, step="settle", priority=view.priority)
        elif view.state != "PENDING" and not view.ended:
            raised_s = time.time()  # what is set outlives a requeue: seen to again
        self._store.recoveries.change(work, raised_s=raised_s)

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
            if work.nice:
                await self._slurm.update(view.handle, Nice=work.nice)


def _place(work: Recovery) -> Place:
    return Place(work.front, work.base)
