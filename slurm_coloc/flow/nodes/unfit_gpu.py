# SPDX-License-Identifier: Apache-2.0
"""Stage launch, in colocd: puts a job whose GPUs are not fit for it back into the queue.

Its Prolog reports what is on the GPUs and waits for the answer; meanwhile the job is requeued held,
so its script never starts, nothing fails and no node is drained. Then it is released, and excludes
that node for a while where another could take it. The list is in the database and every step
follows from what Slurm shows, so colocd may stop at any point.
"""

import time
from collections.abc import Callable
from typing import Any

import structlog

from slurm_coloc.core.decide.decision import Action
from slurm_coloc.core.records.lists import PutBack
from slurm_coloc.core.records.runs import Key, StoredDecision, shared
from slurm_coloc.core.recover.fitness import GpuNow, unfit
from slurm_coloc.core.recover.put_back import Goal, Step, next_step, pause_s
from slurm_coloc.core.slurm.job import JobView
from slurm_coloc.errors import SlurmError
from slurm_coloc.flow.cluster.context import Context
from slurm_coloc.flow.nodes.other_users import OtherUsers, met
from slurm_coloc.flow.recover.alternative_nodes import excluded_before
from slurm_coloc.flow.recover.retry_limit import refused

log = structlog.get_logger()

# slurmctld may carry out an unanswered order up to so many seconds later.
ORDER_S = 120.0
STEPS_A_ROUND = 6
# Seconds between two checks of a job that waits, and of one that runs and still excludes a node:
# there may be hundreds, each a command.
LOOK_S, RUNS_S = 20.0, 120.0


class Gate:
    """Judges launches, and releases the jobs that were put back."""

    def __init__(self, context: Context, see: Callable[[JobView], None]) -> None:
        """``see``: opens the run of a job that is in the queue again, so that it is followed."""
        self._config = context.config.gate
        self._store, self._slurm = context.store, context.slurm
        self._context, self._off, self._see = context, context.off, see
        self._places = context.config.recovery.raise_by == "priority"  # priorities may be set
        self._others = OtherUsers(context)
        self._ordering: set[tuple[str, int]] = set()
        self._later: dict[Key, float] = {}  # when (monotonic) the next check is due

    async def judge(
        self,
        view: JobView,
        decision: StoredDecision,
        node: str,
        gpus: list[GpuNow],
        need_mib: int | None,
        *,
        last: bool,
        unfenced: str = "",
    ) -> dict[str, Any] | None:
        """What is wrong with ``gpus`` for this run, None where nothing is. ``back`` in the answer:
        the job was put back and must not start (only in the ``last`` call). ``unfenced``: why
        nothing would hold the job to its share there."""
        if not self._config.enabled or decision.mode != "on" or not _placed(decision):
            return None
        found = [why for gpu in gpus if (why := unfit(gpu, need_mib, self._config.slack_mib))]
        if need_mib is not None and (others := await self._others.on(view, gpus)):
            found.append(others)
        if unfenced and need_mib is not None and self._config.require_fence:
            found.append(f"nothing would hold its memory: {unfenced}")
        if not found:
            return None
        why = "; ".join(found)[:400]
        if not last:
            return {"back": False, "why": why}
        refused = self._may_not(view, decision)
        if not refused:
            refused = await self._put_back(view, decision.id, node, why)
        text = f"{node}: {why}: "
        text += f"it starts all the same: {refused}" if refused else "put back into the queue"
        self._store.note(decision.id, view.job_id, "launch", text)
        log.warning("unfit", jobid=view.job_id, node=node, why=why, result=refused or "put back")
        return {"back": not refused, "why": why}

    def _may_not(self, view: JobView, decision: StoredDecision) -> str:
        """Why the job may not be put back; "" where it may."""
        if not view.batch:
            return "it has no script that could run later"
        if not view.requeue or not decision.may_requeue:
            return "its owner wants no requeue"
        if self._off():
            return "colocd is switched off"
        if self._store.putbacks.count(decision.id, view.job_id) >= self._config.max_per_job:
            return f"it was put back {self._config.max_per_job} times"
        return ""

    async def _put_back(self, view: JobView, decision_id: str, node: str, why: str) -> str:
        """Requeue the job held; "" when that is done or under way, else why not."""
        key = (decision_id, view.job_id, view.restarts)
        if (known := self._store.putbacks.of(*key)) is not None:
            # Another node's Prolog, or a second try of this one.
            return "" if known.state == "open" else "it was refused before"
        was, now = await excluded_before(self._context, view, node), time.time()
        row = PutBack(
            *key,
            uid=view.uid,
            node=node,
            why=why,
            was=was,
            base=view.priority if self._places else 0,
            created_s=now,
            updated_s=now,
        )
        self._ordering.add(key[:2])
        try:
            with self._store.transaction(durable=True):
                self._store.putbacks.add(row)
            await self._slurm.requeue_hold(view.handle)
        except SlurmError as err:
            if not err.away:  # else Slurm may still carry it out: the row stays open
                self._store.putbacks.change(row, state="refused", note=err.message)
            return err.message
        finally:
            self._ordering.discard(key[:2])
        return ""

    async def round(self) -> None:
        """One step for every job that was put back."""
        for row in self._store.putbacks.open():
            if (row.decision, row.job_id) in self._ordering:
                continue
            if self._later.get(row.key, 0.0) > time.monotonic():
                continue
            try:
                await self._advance(row)
            except SlurmError as err:
                await self._failed(row, err)

    async def _advance(self, row: PutBack) -> None:
        for _ in range(STEPS_A_ROUND):
            view = await self._slurm.job(row.job_id)
            if view is None or view.decision != row.decision:
                gone = "done" if row.excluded and row.delayed else "lost"
                self._close(row, gone, "slurmctld no longer knows the job")
                return
            age_s = time.time() - row.created_s
            if view.restarts == row.restart and not view.ended and age_s < ORDER_S:
                return
            goal = Goal(
                row.restart,
                row.was is not None,
                row.excluded,
                row.delayed,
                age_s >= self._config.exclude_s,
                row.base,
            )
            step = next_step(view, goal)
            if step is Step.WAIT:
                if row.delayed:
                    waits = view.state == "PENDING"
                    self._later[row.key] = time.monotonic() + (LOOK_S if waits else RUNS_S)
                    if not waits:
                        self._see(view)
                return
            if step in (Step.DONE, Step.LOST):
                text = "back in the queue" if step is Step.DONE else "the job had started"
                self._close(row, str(step), text)
                self._see(view)
                return
            await self._do(step, row, view)

    async def _do(self, step: Step, row: PutBack, view: JobView) -> None:
        if step is Step.EXCLUDE:
            try:
                await self._slurm.update(view.handle, ExcNodeList=self._list(row, row.node))
            except SlurmError as err:
                if err.away:
                    raise
                # No other node can take it: it waits for this one.
                self._store.putbacks.change(row, was=None, note=err.message)
                return
            self._store.putbacks.change(row, excluded=True)
        elif step is Step.RELEASE:
            await self._slurm.release(view.handle)
        elif step is Step.PLACE:
            await self._slurm.update(view.handle, Priority=row.base)
            self._store.putbacks.change(row, base=0)
        elif step is Step.DELAY:
            await self._own_gpu(row, view)
            await self._slurm.update(view.handle, StartTime=f"now+{self._wait_s(row)}")
            self._store.putbacks.change(row, delayed=True)
        elif step is Step.ADMIT:
            await self._slurm.update(view.handle, ExcNodeList=self._list(row))
            self._store.putbacks.change(row, excluded=False, was=None)
        log.info("put back", jobid=row.job_id, decision=row.decision, step=str(step))

    async def _own_gpu(self, row: PutBack, view: JobView) -> None:
        """Ask for a whole GPU for a share that met another user's where only Slurm places it: it
        would meet him again. Steered, it gets a pin."""
        decision = self._store.decisions.of(row.decision)
        steered = self._context.config.placement.mode == "steered"
        if decision is None or steered or not met(row.why) or not shared(view.tres, decision):
            return
        try:
            await self._slurm.set_gres(view.handle, decision.exclusive_tres)
        except SlurmError as err:
            if err.away:
                raise
            log.info("put back", jobid=row.job_id, decision=row.decision, error=err.message)
            return
        text = "it asks for a whole GPU now: Slurm might put it beside another user again"
        self._store.note(row.decision, row.job_id, "launch", text)

    def _list(self, row: PutBack, *more: str) -> str:
        """ExcNodeList: the owner's nodes, those of other open put-backs, and ``more``."""
        others = self._store.putbacks.open_of(row.decision, row.job_id)
        ours = [one.node for one in others if one.excluded and one.key != row.key]
        return ",".join(dict.fromkeys(filter(None, (row.was, *ours, *more))))

    def _wait_s(self, row: PutBack) -> int:
        """Seconds until the job may start: few where it excludes the node."""
        if row.excluded:
            return 5  # an earlier start can meet the last run's revoked credential
        times = self._store.putbacks.count(row.decision, row.job_id)
        return int(pause_s(times, self._config.wait_s, self._config.longest_wait_s))

    async def _failed(self, row: PutBack, err: SlurmError) -> None:
        def held(view: JobView) -> bool:
            return view.held_by_requeue and view.restarts == row.restart + 1

        text = await refused("gate", self._store.putbacks, self._slurm, row, err, held)
        if text:
            self._close(row, "failed", text)

    def _close(self, row: PutBack, state: str, text: str) -> None:
        self._later.pop(row.key, None)
        with self._store.transaction():
            self._store.putbacks.change(row, state=state, note=text, updated_s=time.time())
            if state != "done":
                self._store.note(row.decision, row.job_id, "launch", text)
        log.info("put back", jobid=row.job_id, decision=row.decision, result=state)


def _placed(decision: StoredDecision) -> bool:
    """Whether colocd chose what the job gets, instead of the owner's own request."""
    return decision.action in (Action.COLLOCATE, Action.EXCLUSIVE)
