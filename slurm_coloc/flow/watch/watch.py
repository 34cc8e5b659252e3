# SPDX-License-Identifier: Apache-2.0
"""Stage watch: compares what Slurm shows with the runs that colocd follows, and closes those that
have ended.

Everything follows from Slurm's present state, so it does not matter how long colocd was away.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

import structlog

from slurm_coloc.adapters.slurm import SlurmClient
from slurm_coloc.adapters.store import Store
from slurm_coloc.core.records.runs import Run
from slurm_coloc.core.recover.outcome import Outcome
from slurm_coloc.core.slurm.job import JobView, observed_in
from slurm_coloc.errors import SlurmError
from slurm_coloc.flow.watch.causes import Causes, put_back, same_job
from slurm_coloc.flow.watch.record import Recorder, judge_ended, leaves, out_of_memory, ran_out
from slurm_coloc.flow.watch.turns import Turns

log = structlog.get_logger()

# sbatch's job appears within milliseconds of the decision; a submission that failed after our hook
# (a limit, another plugin) never becomes one.
ABANDON_AFTER_S = 600.0
# Seconds to wait for the report of a FAILED job: the node may be slow, or the report is spooled.
# And after colocd is back: agents find it within seconds, or try again after a minute.
REPORT_GRACE_S, RETURN_GRACE_S = 60.0, 120.0
REPORTS_KEPT_S = 7 * 86400.0
# After a report the job is checked until it has left COMPLETING: after 0.1 s, doubling to 5 s.
FIRST_LOOK_S, LAST_LOOK_S, LOOKS = 0.1, 5.0, 12
# Checks that ask Slurm at one time: the jobs that end together wait for each other here, where none
# is refused, and leave places at Slurm's gate to recoveries.
LOOKS_AT_ONCE = 16
# Jobs that are asked for by their ids; all jobs are asked for where there are more.
ASKED_BY_ID = 1000

# Rows between two turns of the event loop, so that submissions are answered meanwhile.
CHUNK = 20

T = TypeVar("T")


def _chunks(items: list[T]) -> Iterator[list[T]]:
    return (items[start : start + CHUNK] for start in range(0, len(items), CHUNK))


class Watcher:
    """Follows the jobs that carry our mark."""

    def __init__(
        self,
        store: Store,
        slurm: SlurmClient,
        recorder: Recorder,
        adopt: Callable[[JobView], bool] = lambda view: False,
    ) -> None:
        """``adopt``: takes over a job whose decision is not in the database."""
        self._adopt = adopt
        self._store = store
        self._slurm = slurm
        self._recorder = recorder
        self._turns = Turns()
        self._looks = asyncio.Semaphore(LOOKS_AT_ONCE)
        self._since_s = 0.0  # of the first round (Unix seconds): colocd is in charge from then on

    async def poll(self, job_id: int, uid: int, *, trusted: bool) -> None:
        """Check one job that a user asks about and colocd does not follow: for an ordinary user
        only one not seen yet, while colocd follows jobs of his, or an ended one."""
        runs = self._store.runs.of_job(job_id)
        if any(run.open for run in runs):
            return
        mine = runs[-1].uid == uid if runs else self._follows(uid)
        if not (trusted or mine):
            return
        if not trusted and not self._turns.take(uid, ended=bool(runs)):
            if runs:
                return
            # Asked for within a second after another question: by then it may be looked for.
            await self._turns.wait()
            if self._store.runs.of_job(job_id) or not self._turns.take(uid):
                return
        try:
            view = await self._slurm.job(job_id)
        except SlurmError as err:
            log.warning("slurm", jobid=job_id, error=err.message)
            return
        if view is not None:
            self.see(view)

    def _follows(self, uid: int) -> bool:
        """Whether this user has a decision whose job was not seen yet, or a run that goes on."""
        return self._store.runs.goes_on_for(uid) or self._store.decisions.unbound(uid)

    async def freshen(self, uid: int) -> None:
        """Check Slurm now for a user whose submission has not been seen yet."""
        if not self._store.decisions.unbound(uid):
            return
        if not self._turns.take(uid):  # he asked within the second: by then it may be looked for
            await self._turns.wait()
            if not self._store.decisions.unbound(uid) or not self._turns.take(uid):
                return
        try:
            views = await self._slurm.jobs_of([uid])
        except SlurmError as err:
            log.warning("slurm", error=err.message)
            return
        await self._see_each(views)

    async def reconcile(self) -> None:
        """One round over the jobs of the users that colocd follows, and nobody else's."""
        began_s = time.time()
        self._since_s = self._since_s or began_s
        runs = self._store.runs.open()  # read first: a run that begins meanwhile is not gone
        users = self._store.runs.followed_users()
        if users:
            by_id = await self._see_each(await self._slurm.jobs_of(users))
            by_id |= await self._missed({run.job_id for run in runs if run.job_id not in by_id})
            ours = (run.job_id for run in runs if put_back(run, by_id.get(run.job_id)))
            causes = Causes(self._slurm, list(ours))
            for some_runs in _chunks(runs):
                for run in some_runs:
                    shown = by_id.get(run.job_id)
                    self._settle(run, shown, await causes.of(run, shown))
                    self._forgotten(run, shown, began_s)
                await asyncio.sleep(0)
        now = time.time()
        self._store.decisions.abandon(now - ABANDON_AFTER_S)
        self._store.reports.forget(now - REPORTS_KEPT_S)

    async def _missed(self, job_ids: set[int]) -> dict[int, JobView]:
        """Those of these jobs that slurmctld knows after all: for squeue a user has no jobs, and
        that is no error, while the host's directory does not know him. Raises SlurmError."""
        if not job_ids:
            return {}
        if len(job_ids) > ASKED_BY_ID:
            found = {view.job_id: view for view in await self._slurm.all_jobs()}
        else:
            found = await self._slurm.jobs(job_ids)
        return await self._see_each([found[one] for one in job_ids & found.keys()])

    async def poll_once(self, job_id: int) -> JobView | None:
        """Check one job and close its run that has ended; None where Slurm does not answer."""
        try:
            async with self._looks:
                view = await self._slurm.job(job_id)
        except SlurmError as err:
            log.warning("slurm", jobid=job_id, error=err.message)
            return None
        if view is not None:
            self.see(view)
            causes = Causes(self._slurm, [job_id])
            for run in self._store.runs.of_job(job_id):
                if run.open:
                    self._settle(run, view, await causes.of(run, view))
            await self._see_array(view)
        return view

    async def see_all(self) -> None:
        """Check every job of the cluster, and take over what another colocd decided."""
        await self._see_each(await self._slurm.all_jobs())

    async def _see_array(self, view: JobView) -> None:
        """Keep following an array: its user's jobs are read only while one run of it is open."""
        decision_id = view.decision
        if not view.array_task or not view.array_job_id or decision_id is None:
            return
        if self._store.runs.goes_on_of(decision_id):
            return
        try:
            views = await self._slurm.tasks_of(view.array_job_id)
        except SlurmError as err:
            log.warning("slurm", jobid=view.job_id, error=err.message)
            return
        await self._see_each(views)

    async def _see_each(self, views: list[JobView]) -> dict[int, JobView]:
        """See every job once, by its id: the waiting tasks of an array share one."""
        by_id = {view.job_id: view for view in reversed(views)}
        for some in _chunks(list(by_id.values())):
            with self._store.transaction():
                for view in some:
                    self.see(view)
            await asyncio.sleep(0)
        return by_id

    async def after_report(self, job_id: int) -> None:
        """Check one job until it has left COMPLETING, so that recovery starts at once."""
        pause = FIRST_LOOK_S
        for _ in range(LOOKS):
            view = await self.poll_once(job_id)
            if view is not None and not view.completing:
                return
            await asyncio.sleep(pause)
            pause = min(pause * 2, LAST_LOOK_S)

    def see(self, view: JobView) -> None:
        """Open or refresh the run that Slurm shows, where the job carries our mark."""
        if (observed := observed_in(view.admin_comment)) is not None:
            self._store.decisions.bind(observed, view.job_id, view.partition or None)
            return
        decision_id = view.decision
        if decision_id is None:
            return
        if not self._store.decisions.known(decision_id) and not self._adopt(view):
            return
        known = {(run.decision, run.restart): run for run in self._store.runs.of_job(view.job_id)}
        run = known.get((decision_id, view.restarts))
        if run is None:
            self._first_sight(decision_id, view)
            if view.held_by_slurm and (decision_id, view.restarts - 1) not in known:
                # It began, failed and was put back unseen: its log may say why.
                self._see(decision_id, replace(view, restarts=view.restarts - 1, state="FAILED"))
        elif not run.open or (run.state, run.tres) == (view.state, view.tres):
            return
        self._see(decision_id, view)

    def _see(self, decision_id: str, view: JobView) -> None:
        array_job_id, array_task = view.task or (None, None)
        self._store.runs.see(
            Run(
                decision_id,
                view.job_id,
                view.restarts,
                array_job_id=array_job_id,
                array_task=array_task,
                uid=view.uid,
                submit_s=view.submit_s,
                state=view.state,
                node=view.nodes or None,
                tres=view.tres or None,
                start_s=view.start_s if view.state != "PENDING" else None,
            )
        )

    def _first_sight(self, decision_id: str, view: JobView) -> None:
        self._store.decisions.bind(decision_id, view.job_id, view.partition or None)
        text = (
            "submitted" if view.restarts == 0 else f"in the queue again (restart {view.restarts})"
        )
        self._store.note(decision_id, view.job_id, "seen", text)

    def _forgotten(self, run: Run, view: JobView | None, began_s: float) -> None:
        """Plan a recovery again where slurmctld died before it saved its state, and so shows the
        job as before our requeue, or in our hold. ``run`` was known before ``view`` was read."""
        if view is None or run.restart == 0:
            return
        failed = view.restarts == run.restart - 1 and view.state == "FAILED"
        held = view.restarts == run.restart and view.held_by_requeue
        if not failed and not held:
            return
        work = self._store.recoveries.of(run.decision, run.job_id, run.restart - 1)
        if work is None or work.state != "done" or work.updated_s >= began_s:
            return
        if work.held or failed:
            self._store.recoveries.change(work, state="open", raised=False, tries=0)
            text = "slurmctld lost the recovery when it was restarted: it is done again"
            self._store.note(run.decision, run.job_id, "recover", text)

    def _settle(self, run: Run, view: JobView | None, cause: Outcome) -> None:
        """Close a run that has ended. ``cause``: why Slurm shows a later run, if it does."""
        report = self._recorder.report_on(run)
        if view is None or not same_job(run, view):  # MinJobAge is over, or ids began again
            if report is not None or not self._awaits(run, 0.0):
                self._recorder.end(run, Outcome.GONE, None, report)
        elif view.restarts < run.restart:
            return  # older than the run
        elif view.restarts > run.restart:
            if view.completing and report is None and self._recorder.in_slots(run):
                return  # only its Epilog can tell whether it left to go on
            # What its log showed holds for the next run too, no matter who put it back.
            ours = self._store.putbacks.of(*run.key)
            why = Outcome.PUT_BACK if ours and ours.state in ("open", "done") else cause
            self._recorder.end(run, Outcome.OOM_GPU if ran_out(report) else why, None, report)
        elif view.ended or out_of_memory(view, report) or leaves(view, report):
            if report is None and self._awaits(run, view.end_s or 0.0, view.state == "FAILED"):
                return
            self._recorder.end(run, judge_ended(view, report), view, report)

    def _awaits(self, run: Run, end_s: float, failed: bool = False) -> bool:
        """Whether a run's report may still come: nodes deliver what they kept while colocd was
        away. One that told nothing of the start may have nothing to tell of the end."""
        now = time.time()
        away = end_s < self._since_s and now - self._since_s < RETURN_GRACE_S
        fresh = failed and now - end_s < REPORT_GRACE_S
        return fresh or (away and (failed or run.gpu_uuids is not None))
