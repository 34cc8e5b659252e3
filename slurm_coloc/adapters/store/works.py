# SPDX-License-Identifier: Apache-2.0
"""Recoveries: those under way, what they are counted by, and whose time at the front goes on.

``cause``: whose doing the end was (core/blame); ``way``: what the next try asks for (core/retry);
``base``: the priority that the job had by itself; ``front``: it goes first in line; ``raised_s``:
since when, NULL where it does not or no longer; ``avoid``: a node that it is to be kept from,
``was``: what its owner had excluded before, NULL until that was read.
"""

import sqlite3
from typing import Any

from slurm_coloc.core.retry import VICTIMS

Row = dict[str, Any]

DAY_S = 86400.0
KEYS = ("decision", "job_id", "restart")
_SAME = " AND ".join(f"{name} = ?" for name in KEYS)
#: recoveries that count against the caps: those for the job's own need
_OWN = f"cause NOT IN ({', '.join(repr(str(one)) for one in sorted(VICTIMS))})"


class Works:
    """The table ``work``; a part of the store."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def _rows(self, sql: str, *values: object) -> list[Row]:
        found = self._connection.execute(sql, values)
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found]

    def add(self, row: Row) -> None:
        """Plan a recovery; planning it twice leaves one."""
        marks = ", ".join("?" * len(row))
        sql = f"INSERT OR IGNORE INTO work ({', '.join(row)}) VALUES ({marks})"
        self._connection.execute(sql, tuple(row.values()))

    def open(self) -> list[Row]:
        """Recoveries under way, oldest first."""
        return self._rows("SELECT * FROM work WHERE state = 'open' ORDER BY created_s")

    def of(self, decision: str, job_id: int, restart: int) -> Row | None:
        """The recovery of one run, whatever its state."""
        rows = self._rows(f"SELECT * FROM work WHERE {_SAME}", decision, job_id, restart)
        return rows[0] if rows else None

    def of_job(self, decision: str, job_id: int) -> list[Row]:
        """All recoveries of a job, oldest first."""
        sql = "SELECT * FROM work WHERE decision = ? AND job_id = ? ORDER BY restart"
        return self._rows(sql, decision, job_id)

    def raised(self) -> list[Row]:
        """Recovered jobs that were put first in line, the first one first."""
        sql = "SELECT * FROM work WHERE raised_s IS NOT NULL AND state <> 'open' ORDER BY raised_s"
        return self._rows(sql)

    def change(self, work: Row, **changes: object) -> None:
        """Change columns of one recovery."""
        names = ", ".join(f"{name} = ?" for name in changes)
        keys = [work[name] for name in KEYS]
        sql = f"UPDATE work SET {names} WHERE {_SAME}"
        self._connection.execute(sql, (*changes.values(), *keys))

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
