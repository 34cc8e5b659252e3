# SPDX-License-Identifier: Apache-2.0
"""Runs that were put back before they began, because their GPUs were not fit for them.

``state`` is ``open`` until the job is where it belongs; ``was`` what its owner had excluded, NULL
where no other node can take it; ``excluded`` and ``delayed`` what has been done.
"""

import sqlite3
from typing import Any

Row = dict[str, Any]

KEYS = ("decision", "job_id", "restart")
_SAME = " AND ".join(f"{name} = ?" for name in KEYS)


class Putbacks:
    """The table ``putbacks``; a part of the store."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def _rows(self, sql: str, *values: object) -> list[Row]:
        found = self._connection.execute(sql, values)
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found]

    def add(self, row: Row) -> None:
        """Note that a run is put back; a second time changes nothing."""
        marks = ", ".join("?" * len(row))
        sql = f"INSERT OR IGNORE INTO putbacks ({', '.join(row)}) VALUES ({marks})"
        self._connection.execute(sql, tuple(row.values()))

    def of(self, decision: str, job_id: int, restart: int) -> Row | None:
        """One run's, whatever its state."""
        rows = self._rows(f"SELECT * FROM putbacks WHERE {_SAME}", decision, job_id, restart)
        return rows[0] if rows else None

    def open(self) -> list[Row]:
        """Those under way, oldest first."""
        return self._rows("SELECT * FROM putbacks WHERE state = 'open' ORDER BY created_s")

    def open_of(self, decision: str, job_id: int) -> list[Row]:
        """Those of one job that are under way."""
        sql = "SELECT * FROM putbacks WHERE state = 'open' AND decision = ? AND job_id = ?"
        return self._rows(sql, decision, job_id)

    def count(self, decision: str, job_id: int) -> int:
        """How often a job was put back."""
        sql = "SELECT count(*) AS n FROM putbacks WHERE decision = ? AND job_id = ?"
        return int(self._rows(sql, decision, job_id)[0]["n"])

    def since(self, since_s: float) -> list[Row]:
        """Nodes with what was wrong there after ``since_s``, the newest first."""
        return self._rows(
            """SELECT node, count(*) AS runs, max(created_s) AS last_s, why FROM putbacks
               WHERE created_s > ? GROUP BY node
               ORDER BY last_s DESC LIMIT 50""",
            since_s,
        )

    def change(self, row: Row, **changes: object) -> None:
        """Change columns of one."""
        names = ", ".join(f"{name} = ?" for name in changes)
        keys = [row[name] for name in KEYS]
        sql = f"UPDATE putbacks SET {names} WHERE {_SAME}"
        self._connection.execute(sql, (*changes.values(), *keys))
        row.update(changes)
