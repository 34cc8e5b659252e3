# SPDX-License-Identifier: Apache-2.0
"""One table of the store: rows as dictionaries, added once, found and changed by their keys."""

import sqlite3
from typing import Any, ClassVar

Row = dict[str, Any]


class Table:
    """A part of the store. ``NAME``: of the table; ``KEYS``: what tells its rows apart."""

    NAME: ClassVar[str]
    KEYS: ClassVar[tuple[str, ...]]

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def _rows(self, sql: str, *values: object) -> list[Row]:
        found = self._connection.execute(sql, values)
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found]

    def _same(self) -> str:
        return " AND ".join(f"{name} = ?" for name in self.KEYS)

    def add(self, row: Row) -> None:
        """Add one; a second time changes nothing."""
        marks = ", ".join("?" * len(row))
        sql = f"INSERT OR IGNORE INTO {self.NAME} ({', '.join(row)}) VALUES ({marks})"
        self._connection.execute(sql, tuple(row.values()))

    def of(self, *keys: object) -> Row | None:
        """The one with these KEYS, whatever its state."""
        rows = self._rows(f"SELECT * FROM {self.NAME} WHERE {self._same()}", *keys)
        return rows[0] if rows else None

    def change(self, row: Row, **changes: object) -> None:
        """Change columns of one, in the database and in ``row``."""
        names = ", ".join(f"{name} = ?" for name in changes)
        keys = [row[name] for name in self.KEYS]
        sql = f"UPDATE {self.NAME} SET {names} WHERE {self._same()}"
        self._connection.execute(sql, (*changes.values(), *keys))
        row.update(changes)
