# SPDX-License-Identifier: Apache-2.0
"""Stage slots: jobs that run for a time slot, save, and go to the back of the queue.

colocd sends the signal before a slot's end and counts the time; the job leaves by itself, since
only it knows that it has saved. One that says so and does not leave is put back; any other runs on
([slots] cut). The table ``slots`` holds what was used and what is to be done; every step follows
from what Slurm shows, so colocd may stop at any point: meanwhile a slot only lasts longer.
"""

import time
from collections.abc import Awaitable, Callable

import structlog

from slurm_coloc.core.records.lists import SlottedJob, StretchedRun
from slurm_coloc.core.records.runs import OfRun, Run
from slurm_coloc.core.recover.outcome import Outcome
from slurm_coloc.core.slurm.job import JobView
from slurm_coloc.core.time.slot import (
    Slot,
    State,
    Step,
    ended_by_slot,
    given_back_s,
    last_s,
    limit_min,
    next_step,
    saved_since,
    slot_from,
    total_with,
    words,
)
from slurm_coloc.errors import SlurmError
from slurm_coloc.flow.cluster.context import Context
from slurm_coloc.flow.recover.retry_limit import MAX_TRIES, counted, notify

log = structlog.get_logger()

STEPS_A_ROUND = 8
# A job is checked when something is due, and at this interval (s): each check is a command.
LOOK_S = 20.0
START_AFTER_S = 5  # an earlier start can meet the last run's revoked credential
CUT = "coloc: its time slot is over and it has saved: it is put back into the queue."
DROPPED = (
    "coloc: its time slot is over and it did not leave: no checkpoint, so it is not cut. It has no"
    " more slots and runs to its time limit."
)


class Slots:
    def __init__(self, context: Context, poll: Callable[[int], Awaitable[JobView | None]]) -> None:
        """``poll``: reads a job from Slurm and closes its runs that ended (Watcher.poll_once)."""
        self._config, self._slowdown = context.config.slots, context.config.slowdown
        self._store, self._slurm, self._off = context.store, context.slurm, context.off
        self._poll = poll
        self._busy: set[tuple[str, int]] = set()
        self._later: dict[tuple[str, int], float] = {}  # when (monotonic) the next check is due

    async def round(self) -> None:
        """One round over the jobs with slots for which something may be due."""
        for run in self._store.slots.unknown():
            await self._begin(run)
        for row in self._store.slots.live():
            if self._later.get(_key(row), 0.0) <= time.monotonic():
                await self._try(row)

    async def at_once(self, job_id: int) -> None:
        """Check one job now."""
        for row in self._store.slots.live():
            if row.job_id == job_id:
                await self._try(row)

    async def _begin(self, run: Run) -> None:
        """Add the row of a new job, with its owner's limit and nice value."""
        decision = self._store.decisions.of(run.decision)
        try:
            view = await self._slurm.job(run.job_id)
            if view is None or decision is None or view.decision != run.decision:
                return
            terms = await self._slurm.terms(view.handle)
        except SlurmError as err:
            log.warning("slots", jobid=run.job_id, error=err.message)
            return
        now = time.time()
        # Of one without --time that waits Slurm shows MaxTime; it sets DefaultTime at the start.
        known = view.state != "PENDING" or decision.request.get("time_limit")
        total_s = terms.limit_s if known else None
        new = SlottedJob(
            *_key(run), uid=run.uid, total_s=total_s, nice=terms.nice, created_s=now, updated_s=now
        )
        self._store.slots.add(new)

    async def _try(self, row: SlottedJob) -> None:
        key = _key(row)
        if key in self._busy:
            return
        fresh = self._store.slots.of(*key)
        if fresh is None or not fresh.live:
            return
        self._busy.add(key)
        try:
            await self._advance(fresh)
        except SlurmError as err:
            self._failed(fresh, err)
        finally:
            self._busy.discard(key)

    async def _advance(self, row: SlottedJob) -> None:
        decision = self._store.decisions.of(row.decision)
        if decision is None or decision.slot is None:
            return self._close(row, "lost", "its decision was forgotten")
        slot = slot_from(decision.slot)
        for _ in range(STEPS_A_ROUND):
            view = await self._poll(row.job_id)
            if view is None or view.decision != row.decision:
                return await self._gone(row)
            now = time.time()
            state, config = self._state(row), self._config
            step = next_step(view, state, slot, now, config.grace_s, config.behind_s)
            if step is Step.WAIT or (step is Step.SIGNAL and self._off()):
                self._wait(row, view, slot, now)
                return None
            if step is Step.DROP and await self._may_cut(row, view):
                step = Step.CUT
            if step in (Step.DONE, Step.LOST):
                return self._close(row, str(step), f"the job is {view.state}")
            await self._do(step, row, view, slot)
            if not row.live:
                return None
        return None

    async def _may_cut(self, row: SlottedJob, view: JobView) -> bool:
        """Whether a job that did not leave is put back: it must have saved."""
        if self._config.cut != "saved" or row.signalled_s is None:
            return self._config.cut == "always"
        return saved_since((await self._slurm.terms(view.handle)).comment, row.signalled_s)

    async def _gone(self, row: SlottedJob) -> None:
        """Close the row of a job unknown to Slurm. Raises SlurmError without slurmctld."""
        view = await self._slurm.job(row.job_id)
        if view is None or view.decision != row.decision:
            self._close(row, "lost", "slurmctld no longer knows the job")

    def _state(self, row: SlottedJob) -> State:
        run, work = self._store.runs.of(*row.key), self._store.recoveries.of(*row.key)
        return State(
            restart=row.restart,
            used_s=row.used_s,
            total_s=row.total_s,
            signalled_s=row.signalled_s,
            asks=bool(run and run.outcome == Outcome.SLOT),
            # A run is closed when its Epilog's report has come, or is not waited for any more.
            judged=not (run and run.open) and not (work and work.state == "open"),
            placed=row.placed,
            behind_s=row.behind_s,
            dropped=row.state == "dropped",
            lost_s=self._lost_s(self._store.stretches.of(*row.key), time.time()),
        )

    def _wait(self, row: SlottedJob, view: JobView, slot: Slot, now: float) -> None:
        """Set when this job is checked again."""
        due_s = now + LOOK_S
        if view.state == "RUNNING" and not view.completing and view.start_s:
            over_s = (row.signalled_s or 0.0) + slot.warn_s + self._config.grace_s
            end_s = view.start_s + slot.length_s - slot.warn_s
            due_s = over_s if row.signalled_s else end_s
            if row.state == "dropped" or due_s < now:
                due_s = now + LOOK_S
        elif row.behind_s is not None:
            due_s = min(due_s, row.behind_s + self._config.behind_s)
        self._later[_key(row)] = time.monotonic() + min(max(due_s - now, 1.0), 3 * LOOK_S)

    async def _do(self, step: Step, row: SlottedJob, view: JobView, slot: Slot) -> None:
        now, left = time.time(), self._state(row).left_s
        change = self._store.slots.change
        text = ""
        if step is Step.SIGNAL:
            # Noted first: a second signal could reach a program that is already saving.
            with self._store.transaction(durable=True):
                change(row, signalled_s=now, updated_s=now)
            await self._slurm.signal(view.handle, slot.signal)
            text = f"SIG{slot.signal}: its slot of {words(slot.length_s)} ends"
        elif step is Step.DROP:
            await notify(self._slurm, view, DROPPED)
            change(row, state="dropped", updated_s=now)
            text = "it did not leave at its slot's end: no more slots, it runs to its time limit"
        elif step is Step.CUT:
            # Its signal is noted already, so the run counts as a slot even if colocd stops here.
            await notify(self._slurm, view, CUT)
            await self._slurm.requeue(view.handle)
            text = "it did not leave at its slot's end: put back into the queue"
        elif step is Step.COUNT:
            text = self._count(row, view, slot, await self._total_s(row, view))
        elif step is Step.REQUEUE:
            await self._slurm.requeue(view.handle)
            text = "put back into the queue, as it asked"
        elif step is Step.BEHIND:
            # Nice + 1: behind its equals; under priority/basic any such change is the last place.
            fields: dict[str, str | int] = {"Nice": row.nice + 1} if self._config.behind_s else {}
            await self._slurm.update(
                view.handle, **fields, **_bound(left), StartTime=f"now+{START_AFTER_S}"
            )
            change(row, placed=True, behind_s=now if fields else None, updated_s=now)
            text = "back in the queue, behind others of its priority" + _left(left)
        elif step is Step.BOUND:
            if left is not None:
                # At a limit that is over Slurm would end it at once: it has the time to save.
                left = max(left, now - (view.start_s or now) + slot.warn_s)
                await self._slurm.update(view.handle, **_bound(left))
                change(row, total_s=row.used_s + left)
            change(row, placed=True, updated_s=now)
        elif step is Step.FORWARD:
            await self._slurm.update(view.handle, Nice=row.nice)
            change(row, behind_s=None, updated_s=now)
        elif step is Step.CANCEL:
            await self._slurm.cancel(view.handle)
            text = "the time that was asked for is used: it does not go on"
            self._close(row, "done", text)
        log.info("slot", jobid=row.job_id, decision=row.decision, step=str(step))
        if text:
            self._store.note(row.decision, row.job_id, "slot", text)

    async def _total_s(self, row: SlottedJob, view: JobView) -> float | None:
        """The time of all slots, with what its owner or an admin has made of it."""
        if not row.placed:
            return row.total_s  # its limit is still that of the slot before
        limit_s = (await self._slurm.terms(view.handle)).limit_s
        known = self._store.stretches.of(*row.key)
        if known and known.set_s and limit_s == known.set_s:
            limit_s = known.base_s
        return total_with(row.total_s, row.used_s, limit_s, known.base_s if known else None)

    def _count(self, row: SlottedJob, view: JobView, slot: Slot, total_s: float | None) -> str:
        """Account for the runs that ended since the last check; the text of the event."""
        used_s, by_slot = row.used_s, False
        for restart in range(row.restart, view.restarts):
            run = self._store.runs.of(row.decision, row.job_id, restart)
            # colocd never saw this run start: a whole slot is the most that it can have used.
            ran_s = float(slot.length_s)
            if run is not None and run.start_s:
                known = self._store.stretches.of(*run.key)
                seen_s = max(row.signalled_s or 0.0, known.at_s if known else 0.0)
                latest_s = last_s(run.start_s, seen_s, slot, self._config.grace_s)
                end_s = min(run.end_s or time.time(), latest_s)
                ran_s = max(0.0, end_s - run.start_s - self._lost_s(known, end_s))
            signalled = restart == row.restart and row.signalled_s is not None
            asked = bool(run and run.outcome == Outcome.SLOT)
            if ended_by_slot(signalled, asked, ran_s, slot):
                used_s, by_slot = used_s + ran_s, True
        self._store.slots.change(
            row,
            restart=view.restarts,
            total_s=total_s,
            used_s=used_s,
            signalled_s=None,
            # Where its owner or Slurm put it back, its start, priority and limit are not ours.
            placed=row.placed and not by_slot,
            ended=row.ended + by_slot,
            updated_s=time.time(),
        )
        return f"its slot has ended, {words(used_s)} used" if by_slot else ""

    def _lost_s(self, known: StretchedRun | None, end_s: float) -> float:
        """Seconds that the run lost beside others (flow/time/limits), which do not count as its
        own; 0 where limits are not stretched."""
        if self._slowdown.stretch == "off" or known is None:
            return 0.0
        return given_back_s(
            known.lost_s, known.at_s, known.speed, known.start_s, end_s, self._slowdown.max_factor
        )

    def _failed(self, row: SlottedJob, err: SlurmError) -> None:
        tries = counted("slots", self._store.slots, row, err, note=err.message)
        self._later[_key(row)] = time.monotonic() + min(2.0**tries, 60.0)
        if tries >= MAX_TRIES:
            self._close(row, "failed", f"given up, the job goes on as it is: {err.message}")

    def _close(self, row: SlottedJob, state: str, text: str) -> None:
        self._later.pop(_key(row), None)
        self._store.slots.change(row, state=state, note=text, updated_s=time.time())
        log.info("slot", jobid=row.job_id, decision=row.decision, result=state, why=text)
        if state == "failed":
            self._store.note(row.decision, row.job_id, "slot", text)


def _bound(left_s: float | None) -> dict[str, str | int]:
    """The time limit for what is left; none where the job has none."""
    return {} if left_s is None else {"TimeLimit": limit_min(left_s)}


def _left(left_s: float | None) -> str:
    return "" if left_s is None else f"; {words(left_s)} left"


def _key(row: OfRun) -> tuple[str, int]:
    return row.decision, row.job_id
