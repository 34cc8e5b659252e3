# SPDX-License-Identifier: Apache-2.0
"""Recoveries: those under way, what they are counted by, and those raised in the queue."""

from slurm_coloc.adapters.store.table import Table
from slurm_coloc.core.records.lists import Recovery
from slurm_coloc.core.recover.next_try import VICTIMS

DAY_S = 86400.0
#: recoveries that count against the caps: those for the job's own need
_OWN = f"cause NOT IN ({', '.join(repr(str(one)) for one in sorted(VICTIMS))})"


class Recoveries(Table[Recovery]):
    """The table ``work``; a part of the store."""

    RECORD = Recovery
    NAME = "work"
    KEYS = ("decision", "job_id", "restart")

    def open(self) -> list[Recovery]:
        """Recoveries under way, oldest first."""
        return self._rows("SELECT * FROM work WHERE state = 'open' ORDER BY created_s")

    def of_job(self, decision: str, job_id: int) -> list[Recovery]:
        """All recoveries of a job, oldest first."""
        sql = "SELECT * FROM work WHERE decision = ? AND job_id = ? ORDER BY restart"
        return self._rows(sql, decision, job_id)

    def raised(self) -> list[Recovery]:
        """Recovered jobs that were put first in the queue, the first one first."""
        sql = "SELECT * FROM work WHERE raised_s IS NOT NULL AND state <> 'open' ORDER BY raised_s"
        return self._rows(sql)

    def tally(self, job_id: int, decision: str, uid: int, now_s: float) -> tuple[int, int, int]:
        """Recoveries for its own need of this job, and of this user and of all in 24 hours."""
        day_ago_s = now_s - DAY_S
        of_job, of_user, of_all = self._db.execute(
            f"""SELECT coalesce(sum(decision = ? AND job_id = ?), 0),
                       coalesce(sum(uid = ? AND created_s > ?), 0),
                       coalesce(sum(created_s > ?), 0) FROM work WHERE {_OWN}""",
            (decision, job_id, uid, day_ago_s, day_ago_s),
        ).fetchone()
        return of_job, of_user, of_all

    def fronts(self, uid: int, now_s: float) -> int:
        """How many recoveries of this user in 24 hours were put first in the queue, or will be."""
        sql = "SELECT count(*) FROM work WHERE uid = ? AND created_s > ? AND front = 1"
        return int(self._values(sql, uid, now_s - DAY_S)[0])
