# SPDX-License-Identifier: Apache-2.0
"""Runs on shares and their time limits: what each had, lost beside others, and was given."""

from slurm_coloc.adapters.store.table import Table, records
from slurm_coloc.core.records.lists import StretchedRun
from slurm_coloc.core.records.runs import PresentRun


class Stretches(Table[StretchedRun]):
    """The table ``stretches``; a part of the store."""

    RECORD = StretchedRun
    NAME = "stretches"
    KEYS = ("decision", "job_id", "restart")

    def present(self, now_s: float) -> list[PresentRun]:
        """Runs that go on and have begun, and those that have ended since what they cost others was
        counted last, with what their decisions say; the first to begin first."""
        return records(
            PresentRun,
            self._db,
            """SELECT r.decision, r.job_id, r.restart, r.uid, r.state, r.gpu_uuids, r.tres,
                 r.start_s, r.end_s, r.open, d.smact, d.max_slowdown, d.mode, d.action,
                 d.exclusive_tres
               FROM runs r JOIN decisions d ON d.id = r.decision
               WHERE (r.open = 1 OR r.end_s > (
                 SELECT coalesce(min(s.at_s), ?) FROM stretches s JOIN runs o
                   ON o.decision = s.decision AND o.job_id = s.job_id AND o.restart = s.restart
                 WHERE o.open = 1))
                 AND r.start_s IS NOT NULL AND r.outcome IS NOT 'put-back'
                 AND r.state <> 'PENDING'
               ORDER BY r.start_s""",
            now_s,
        )

    def live(self) -> list[StretchedRun]:
        """Those of runs that go on."""
        return self._rows(
            """SELECT s.* FROM stretches s JOIN runs r ON r.decision = s.decision
                 AND r.job_id = s.job_id AND r.restart = s.restart WHERE r.open = 1"""
        )

    def before(self, decision: str, job_id: int, restart: int) -> StretchedRun | None:
        """The row of the last earlier run of a job."""
        rows = self._rows(
            """SELECT * FROM stretches WHERE decision = ? AND job_id = ? AND restart < ?
               ORDER BY restart DESC LIMIT 1""",
            decision,
            job_id,
            restart,
        )
        return rows[0] if rows else None

    def to_restore(self) -> list[StretchedRun]:
        """Stretched runs of jobs of which a later run waits."""
        return self._rows(
            """SELECT s.* FROM stretches s JOIN runs r ON r.decision = s.decision
                 AND r.job_id = s.job_id AND r.restart > s.restart AND r.open = 1
                 AND r.state = 'PENDING'
               WHERE s.state = 'open' AND s.set_s IS NOT NULL"""
        )

    def of_job(self, decision: str, job_id: int) -> list[StretchedRun]:
        """All of a job, the first run first."""
        sql = "SELECT * FROM stretches WHERE decision = ? AND job_id = ? ORDER BY restart"
        return self._rows(sql, decision, job_id)
