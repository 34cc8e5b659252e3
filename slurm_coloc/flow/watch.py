# SPDX-License-Identifier: Apache-2.0
"""Stage watch: compare what Slurm shows with the runs that we follow, and close what has ended.

Everything is found from Slurm's present state, so it does not matter how long colocd was away.
"""

import asyncio
import time
from collections.abc import Iterator
from typing import TypeVar

import structlog

from slurm_coloc.adapters.commands import SlurmCommands
from slurm_coloc.adapters.store import Row, Store
from slurm_coloc.core.comment import decision_in
from slurm_coloc.core.job import JobView
from slurm_coloc.core.outcome import Outcome
from slurm_coloc.errors import SlurmError
from slurm_coloc.flow.record import Recorder, judge_ended

log = structlog.get_logger()

# sbatch's job appears within milliseconds of the decision; a submission that failed after our hook
# (a limit, another plugin) never becomes one.
ABANDON_AFTER_S = 600.0
# A FAILED job whose Epilog has not reported yet: the node may be slow, or the report is spooled.
REPORT_GRACE_S = 60.0
REPORTS_KEPT_S = 7 * 86400.0
# A user's questions lead to no more than one look in this time; so many users are remembered.
FRESH_S = 1.0
ASKERS = 1000
# After a report the job is looked at until it has left COMPLETING: 0.1 s doubling to 5 s.
FIRST_LOOK_S, LAST_LOOK_S, LOOKS = 0.1, 5.0, 12


# Rows between two turns of the event loop, which has submissions to answer meanwhile.
CHUNK = 20

T = TypeVar("T")


def _chunks(items: list[T]) -> Iterator[list[T]]:
    return (items[start : start + CHUNK] for start in range(0, len(items), CHUNK))


class Watcher:
    """Follows the jobs that carry our mark."""

    def __init__(self, store: Store, slurm: SlurmCommands, recorder: Recorder) -> None:
        self._store = store
        self._slurm = slurm
        self._recorder = recorder
        self._asked_s: dict[int, float] = {}

    def _may_look(self, uid: int) -> bool:
        """Whether this user's question may cost slurmctld a call: once in FRESH_S."""
        now = time.monotonic()
        if now - self._asked_s.get(uid, 0.0) < FRESH_S:
            return False
        if len(self._asked_s) > ASKERS:
            self._asked_s.clear()
        self._asked_s[uid] = now
        return True

    async def look(self, job_id: int, uid: int, *, trusted: bool) -> None:
        """Look at one job that somebody asks about and that we have not seen yet; for an ordinary
        user only while a submission of his own is still to be seen."""
        if self._store.runs_of_job(job_id) or not (trusted or self._store.unbound(uid)):
            return
        if not trusted and not self._may_look(uid):
            return
        try:
            view = await self._slurm.job(job_id)
        except SlurmError as err:
            log.warning("slurm", jobid=job_id, error=err.message)
            return
        if view is not None:
            self.see(view)

    async def freshen(self, uid: int) -> None:
        """A look now, where a user asks and a submission of his has not been seen yet."""
        if not self._store.unbound(uid) or not self._may_look(uid):
            return
        try:
            views = await self._slurm.jobs_of([uid])
        except SlurmError as err:
            log.warning("slurm", error=err.message)
            return
        for view in views:
            self.see(view)

    async def reconcile(self) -> None:
        """One look at Slurm: the jobs of the users whom we follow, and nobody else's."""
        runs = self._store.open_runs()  # before the look: a run that begins meanwhile is not gone
        users = self._store.followed_users()
        if users:
            views = await self._slurm.jobs_of(users)
            by_id = {view.job_id: view for view in reversed(views)}
            for some in _chunks(list(by_id.values())):
                with self._store.transaction():
                    for view in some:
                        self.see(view)
                await asyncio.sleep(0)
            for some_runs in _chunks(runs):
                for run in some_runs:
                    self._settle(run, by_id.get(run["job_id"]))
                await asyncio.sleep(0)
        now = time.time()
        self._store.abandon(now - ABANDON_AFTER_S)
        self._store.forget_reports(now - REPORTS_KEPT_S)

    async def after_report(self, job_id: int) -> None:
        """Look at one job until it has left COMPLETING, so that recovery starts at once."""
        pause = FIRST_LOOK_S
        for _ in range(LOOKS):
            try:
                view = await self._slurm.job(job_id)
            except SlurmError as err:
                log.warning("slurm", jobid=job_id, error=err.message)
                view = None
            if view is not None:
                self.see(view)
                for run in self._store.runs_of_job(job_id):
                    if run["open"]:
                        self._settle(run, view)
                if not view.completing:
                    return
            await asyncio.sleep(pause)
            pause = min(pause * 2, LAST_LOOK_S)

    def see(self, view: JobView) -> None:
        """Open or refresh the run that Slurm shows, where the job carries our mark."""
        decision_id = decision_in(view.admin_comment)
        if decision_id is None or self._store.decision(decision_id) is None:
            return
        known = {
            (run["decision"], run["restart"]): run for run in self._store.runs_of_job(view.job_id)
        }
        run = known.get((decision_id, view.restarts))
        if run is None:
            self._first_sight(decision_id, view)
        elif not run["open"] or (run["state"], run["tres"]) == (view.state, view.tres_per_node):
            return
        self._store.see_run(
            {
                "decision": decision_id,
                "job_id": view.job_id,
                "restart": view.restarts,
                "uid": view.uid,
                "submit_s": view.submit_s,
                "state": view.state,
                "node": view.nodes or None,
                "tres": view.tres_per_node or None,
                "start_s": view.start_s if view.state != "PENDING" else None,
            }
        )

    def _first_sight(self, decision_id: str, view: JobView) -> None:
        self._store.bind(decision_id, view.job_id)
        text = (
            "submitted" if view.restarts == 0 else f"in the queue again (restart {view.restarts})"
        )
        self._store.note(time.time(), decision_id, view.job_id, "seen", text)

    def _settle(self, run: Row, view: JobView | None) -> None:
        """Close a run that has ended; leave one that goes on."""
        body = self._recorder.body_for(run)
        if view is None or decision_in(view.admin_comment) != run["decision"]:
            # slurmctld forgot it (MinJobAge), or started its ids again.
            self._recorder.end(run, Outcome.GONE, None, body)
        elif view.restarts < run["restart"]:
            return  # an older look: the run began after it
        elif view.restarts > run["restart"]:
            self._recorder.end(run, Outcome.REQUEUED, None, body)
        elif view.ended:
            waited = time.time() - (view.end_s or 0.0)
            if view.state == "FAILED" and body is None and waited < REPORT_GRACE_S:
                return
            self._recorder.end(run, judge_ended(view, body), view, body)
