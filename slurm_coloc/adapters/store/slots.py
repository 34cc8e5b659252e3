# SPDX-License-Identifier: Apache-2.0
"""Jobs that run in time slots, and how much of their time they have used.

``state`` is ``open`` while the job may have another slot, ``dropped`` when it has none any more but
its time is still bounded, else how it ended. The other columns are core/slot.State's; ``nice`` is
what the job's owner had before it was put behind others.
"""

import sqlite3
from typing import Any

Row = dict[str, Any]

KEYS = ("decision", "job_id")
_SAME = " AND ".join(f"{name} = ?" for name in KEYS)
_LIVE = "state IN ('open', 'dropped')"


class Slots:
    """The table ``slots``; a part of the store."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def _rows(self, sql: str, *values: object) -> list[Row]:
        found = self._connection.execute(sql, values)
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found]

    def add(self, row: Row) -> None:
        """Note a job with slots; a second time changes nothing."""
        marks = ", ".join("?" * len(row))
        sql = f"INSERT OR IGNORE INTO slots ({', '.join(row)}) VALUES ({marks})"
        self._connection.execute(sql, tuple(row.values()))

    def of(self, decision: str, job_id: int) -> Row | None:
        """One job's, whatever its state."""
        rows = self._rows(f"SELECT * FROM slots WHERE {_SAME}", decision, job_id)
        return rows[0] if rows else None

    def live(self) -> list[Row]:
        """Those that are looked after, oldest first."""
        return self._rows(f"SELECT * FROM slots WHERE {_LIVE} ORDER BY created_s")

    def unknown(self) -> list[Row]:
        """Open runs of decisions with a slot whose job is not in the table yet."""
        return self._rows(
            """SELECT r.decision, r.job_id, r.restart, r.uid, d.slot FROM runs r
               JOIN decisions d ON d.id = r.decision
               WHERE r.open = 1 AND d.slot IS NOT NULL AND d.mode = 'on' AND NOT EXISTS
                 (SELECT 1 FROM slots s WHERE s.decision = r.decision AND s.job_id = r.job_id)"""
        )

    def change(self, row: Row, **changes: object) -> None:
        """Change columns of one."""
        names = ", ".join(f"{name} = ?" for name in changes)
        keys = [row[name] for name in KEYS]
        self._connection.execute(
            f"UPDATE slots SET {names} WHERE {_SAME}", (*changes.values(), *keys)
        )
        row.update(changes)
