# SPDX-License-Identifier: Apache-2.0
"""Stage recover: puts a job back into the queue with the request and priority of its next try.

The work list is in the database. Before each step the job is read again, and the step follows from
what Slurm shows, so colocd may stop at any point and go on later.
"""

import time
from collections.abc import Callable

import structlog

from slurm_coloc.core.records.lists import PutBack, Recovery
from slurm_coloc.core.records.runs import Key
from slurm_coloc.core.recover.next_try import Way
from slurm_coloc.core.recover.outcome import Outcome
from slurm_coloc.core.recover.recovery import (
    Goal,
    Place,
    Step,
    next_step,
    priority_for,
    settled_priority,
)
from slurm_coloc.core.slurm.gres import called, same_gres
from slurm_coloc.core.slurm.job import JobView
from slurm_coloc.errors import SlurmError
from slurm_coloc.flow.cluster.context import Context
from slurm_coloc.flow.recover import dependents
from slurm_coloc.flow.recover.alternative_nodes import excluded_before
from slurm_coloc.flow.recover.array_tasks import unpinned
from slurm_coloc.flow.recover.retry_limit import MAX_TRIES, counted, refused

log = structlog.get_logger()

# A step that fails is tried again after 1 s, 2 s, ... up to a minute.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
# One round takes a job through all of its steps; more would mean that nothing changes.
STEPS_A_ROUND = 8
# Seconds between two looks at a raised job that is held, or whose change Slurm refused.
LOOK_AGAIN_S = 60.0


def _back(work: Recovery) -> str:
    whole = f"requeued on {called(work.tres)}"
    told = {Way.MORE: "requeued with more memory", Way.SAME: "requeued with the same request"}
    return told.get(Way(work.way), whole)


def _is_ours(view: JobView, work: Recovery) -> bool:
    """Whether this is the job of the work. Where an admin has overwritten its mark while we hold
    it, its owner, restart count and hold must match."""
    if view.decision == work.decision:
        return True
    fits = view.uid == work.uid and view.restarts == work.restart + 1
    return work.held and fits and view.held


class PriorityBoost:
    """Raises recovered jobs in the queue, for a while."""

    def __init__(self, context: Context) -> None:
        self._recovery = context.config.recovery
        self._store, self._slurm = context.store, context.slurm
        self._later: dict[Key, float] = {}  # when (monotonic) the next look is due

    async def fields(self, work: Recovery, view: JobView) -> dict[str, str | int]:
        """Fields of ``scontrol update`` that set the requeued job's priority."""
        recovery, place = self._recovery, Place(work.front, work.base)
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
            self._later[work.key] = now + LOOK_AGAIN_S
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
        settled = settled_priority(Place(work.front, work.base))
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


#: what `coloc explain` says of a step that is done
SAID = {
    Step.REQUEUE_HOLD: "put back into the queue, held",
    Step.RELEASE: "its hold is over",
}


class Recoverer:
    def __init__(self, context: Context, see: Callable[[JobView], None]) -> None:
        """``see``: opens the run of a job that is in the queue again, so that it is followed."""
        self._recovery = context.config.recovery
        self._boost = PriorityBoost(context)
        self._store, self._slurm = context.store, context.slurm
        self._context, self._off, self._see = context, context.off, see
        self._busy: set[Key] = set()
        # After a failure: when (monotonic seconds) a recovery is tried again, and that pause.
        self._pauses: dict[Key, tuple[float, float]] = {}

    async def round(self) -> None:
        """One step for every open recovery whose pause is over."""
        now = time.monotonic()
        for work in self._store.recoveries.open():
            if self._pauses.get(work.key, (0.0, 0.0))[0] <= now:
                await self._try(work)
        await self._boost.round()

    async def at_once(self, job_id: int) -> None:
        """Try the recovery of one job now."""
        for work in self._store.recoveries.open():
            if work.job_id == job_id and work.key not in self._pauses:
                await self._try(work)

    async def _try(self, work: Recovery) -> None:
        key = work.key
        if key in self._busy:
            return
        fresh = self._store.recoveries.of(*key)  # the list may be older than another turn's steps
        if fresh is None or fresh.state != "open":
            return
        work = fresh
        self._busy.add(key)
        try:
            await self._advance(work)
        except SlurmError as err:
            await self._failed(work, err)
        else:
            self._pauses.pop(key, None)
        finally:
            self._busy.discard(key)

    async def _advance(self, work: Recovery) -> None:
        for _ in range(STEPS_A_ROUND):
            view = await self._slurm.job(work.job_id)
            if view is None or not _is_ours(view, work):
                self._close(work, "lost", "slurmctld no longer knows the job")
                return
            avoid = bool(work.avoid) and not work.excluded
            goal = Goal(work.restart, work.tres, work.raised, work.held, avoid)
            step = next_step(view, goal)
            if step is Step.WAIT or (step is Step.REQUEUE_HOLD and self._off()):
                # Switched off: no recovery begins, but a job that we hold is released.
                return
            if step is Step.DONE:
                text = _back(work)
                if not goal.ours:
                    asks = same_gres(view.tres, goal.tres)
                    text = "put back by somebody else" + (f"; {goal.tres}" if asks else "")
                self._close(work, "done", text)
                self._see(view)
                return
            if step is Step.LOST:
                self._close(work, "lost", f"the job is {view.state}: somebody else acted on it")
                return
            await self._do(step, work, view)

    async def _do(self, step: Step, work: Recovery, view: JobView) -> None:
        job_id, text = work.job_id, SAID.get(step, "")
        if step is Step.REQUEUE_HOLD:
            with self._store.transaction(durable=True):
                self._store.recoveries.change(work, held=True, late=not view.completing)
            await self._slurm.requeue_hold(view.handle)
        elif step is Step.SET_GRES:
            tres = unpinned(work.tres, self._context.shape())
            await self._slurm.set_gres(view.handle, tres)
            text = f"asks for {tres}"
        elif step is Step.EXCLUDE:
            text = await self._exclude(work, view)
        elif step is Step.RELEASE:
            if work.late:
                await dependents.mend(self._store, self._slurm, work, view)
            if not work.held:  # Slurm's own hold: the rest is ours as after our own requeue
                self._store.recoveries.change(work, held=True)
            await self._slurm.release(view.handle)
        elif step is Step.RAISE:
            if not work.qos:
                self._store.recoveries.change(work, qos=view.qos)
            # In one update: a job that starts between two would refuse the second.
            raised = await self._boost.fields(work, view)
            # Without it the job would wait two minutes; at once is too early, see the config.
            start = f"now+{self._recovery.start_after_s}"
            await self._slurm.update(view.handle, **raised, StartTime=start)
            text = f"starts in {self._recovery.start_after_s} s at the earliest"
            text += "".join(f", {name}={value}" for name, value in raised.items())
            raised_s = time.time() if raised else None
            self._store.recoveries.change(work, raised=True, raised_s=raised_s)
        log.info("recover", jobid=job_id, decision=work.decision, step=str(step))
        self._store.note(work.decision, job_id, "recover", text)

    async def _exclude(self, work: Recovery, view: JobView) -> str:
        """Exclude the node where others ended the job, where another could take it; the text of the
        event. The owner's excluded nodes are stored first: in a second try ours is among them."""
        was, node = work.was, work.avoid or ""
        if was is None:
            was = await excluded_before(self._context, view, node)
        if was is None:
            self._store.recoveries.change(work, avoid=None)
            return "no other node could take it"
        self._store.recoveries.change(work, was=was)
        try:
            nodes = ",".join(filter(None, (was, node)))
            await self._slurm.update(view.handle, ExcNodeList=nodes)
        except SlurmError as err:
            if err.away:
                raise
            self._store.recoveries.change(work, avoid=None, was=None)
            return f"not kept from its node: {err.message}"
        self._store.recoveries.change(work, excluded=True)
        return f"kept from {node} for a while"

    async def _failed(self, work: Recovery, err: SlurmError) -> None:
        """Pause after a failure; a recovery that was refused too often is given up."""
        pause = min(self._pauses.get(work.key, (0.0, FIRST_PAUSE_S / 2))[1] * 2, LONGEST_PAUSE_S)
        self._pauses[work.key] = (time.monotonic() + pause, pause)

        def held(view: JobView) -> bool:
            return work.held and view.held and _is_ours(view, work)

        text = await refused("recover", self._store.recoveries, self._slurm, work, err, held)
        if text:
            self._close(work, "failed", text)

    def _close(self, work: Recovery, state: str, text: str) -> None:
        with self._store.transaction():
            self._store.recoveries.change(work, state=state, note=text, updated_s=time.time())
            if work.excluded:
                self._admit_later(work)
            self._store.note(work.decision, work.job_id, "recover", text)
        log.info("recover", jobid=work.job_id, decision=work.decision, result=state)

    def _admit_later(self, work: Recovery) -> None:
        """Hand the exclusion over to the gate, which ends it as it ends its own."""
        now = time.time()
        self._store.putbacks.add(
            PutBack(
                *work.key,
                uid=work.uid,
                node=work.avoid or "",
                why=f"job {work.job_id} was ended there by others: {work.cause}",
                was=work.was,
                excluded=True,
                delayed=True,
                created_s=now,
                updated_s=now,
            )
        )
