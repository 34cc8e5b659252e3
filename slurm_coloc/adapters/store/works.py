# SPDX-License-Identifier: Apache-2.0
"""Recoveries: those under way, what they are counted by, and whose time at the front goes on.

``cause``: whose doing the end was (core/recover/outcome); ``way``: what the next try asks for
(core/recover/next_try); ``base``: the priority that the job had by itself; ``front``: it goes first
in line; ``raised_s``: since when, NULL where it does not or no longer; ``avoid``: a node that it is
to be kept from, ``was``: what its owner had excluded before, NULL until that was read.
"""

from slurm_coloc.adapters.store.table import Row, Table
from slurm_coloc.core.recover.next_try import VICTIMS

DAY_S = 86400.0
#: recoveries that count against the caps: those for the job's own need
_OWN = f"cause NOT IN ({', '.join(repr(str(one)) for one in sorted(VICTIMS))})"


class Works(Table):
    """The table ``work``; a part of the store."""

    NAME = "work"
    KEYS = ("decision", "job_id", "restart")

    def open(self) -> list[Row]:
        """Recoveries under way, oldest first."""
        return self._rows("SELECT * FROM work WHERE state = 'open' ORDER BY created_s")

    def of_job(self, decision: str, job_id: int) -> list[Row]:
        """All recoveries of a job, oldest first."""
        sql = "SELECT * FROM work WHERE decision = ? AND job_id = ? ORDER BY restart"
        return self._rows(sql, decision, job_id)

    def raised(self) -> list[Row]:
        """Recovered jobs that were put first in line, the first one first."""
        sql = "SELECT * FROM work WHERE raised_s IS NOT NULL AND state <> 'open' ORDER BY raised_s"
        return self._rows(sql)

    def tally(self, job_id: int, decision: str, uid: int, now_s: float) -> tuple[int, int, int]:
        """Recoveries for its own need of this job, and of this user and of all in 24 hours."""
        row = self._rows(
            f"""SELECT coalesce(sum(decision = ? AND job_id = ?), 0) AS job,
                       coalesce(sum(uid = ? AND created_s > ?), 0) AS user_day,
                       coalesce(sum(created_s > ?), 0) AS day FROM work WHERE {_OWN}""",
            decision,
            job_id,
            uid,
            now_s - DAY_S,
            now_s - DAY_S,
        )[0]
        return row["job"], row["user_day"], row["day"]

    def fronts(self, uid: int, now_s: float) -> int:
        """How many recoveries of this user in 24 hours were put first in line, or will be."""
        sql = "SELECT count(*) AS n FROM work WHERE uid = ? AND created_s > ? AND front = 1"
        return int(self._rows(sql, uid, now_s - DAY_S)[0]["n"])
