# SPDX-License-Identifier: Apache-2.0
"""One table of the store: its rows as records, added once, found and changed by their keys."""

import json
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from types import GenericAlias, NoneType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, get_args, get_type_hints

from slurm_coloc.adapters.store.database import Database

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

R = TypeVar("R", bound="DataclassInstance")
PLAIN = {int, float, str, NoneType}


def _texts(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


@cache
def _readers(kind: type) -> dict[str, Callable[[Any], Any]]:
    """How values of columns become those of a record's fields, where they are not the same: flags
    are numbers, lists and objects JSON."""
    found: dict[str, Callable[[Any], Any]] = {}
    for name, hint in get_type_hints(kind).items():
        kinds = {hint} if isinstance(hint, GenericAlias) else set(get_args(hint) or [hint])
        if bool in kinds:
            found[name] = bool
        elif tuple[str, ...] in kinds:
            found[name] = _texts
        elif not kinds <= PLAIN:
            found[name] = json.loads
    return found


def records(kind: type[R], db: Database, sql: str, *values: object) -> list[R]:
    """What a question finds, each row as a ``kind`` whose fields are the columns."""
    found = db.execute(sql, values)
    names = [column[0] for column in found.description]
    readers = _readers(kind)
    decoded = [(name, readers[name]) for name in names if name in readers]
    made = []
    for row in found:
        columns = dict(zip(names, row, strict=True))
        for name, read in decoded:
            if columns[name] is not None:
                columns[name] = read(columns[name])
        made.append(kind(**columns))
    return made


def _stored(value: object) -> object:
    return json.dumps(value) if isinstance(value, dict | list | tuple) else value


class Table(Generic[R]):
    """A part of the store. ``RECORD``: a row; ``NAME``: of the table; ``KEYS``: what tells its rows
    apart; ``INSERT``: what is done where there is such a row already."""

    RECORD: type[R]
    NAME: ClassVar[str]
    KEYS: ClassVar[tuple[str, ...]]
    INSERT: ClassVar[str] = "INSERT OR IGNORE"

    def __init__(self, db: Database) -> None:
        self._db = db
        self._names = [one.name for one in fields(self.RECORD)]
        self._same = " AND ".join(f"{name} = ?" for name in self.KEYS)

    def _rows(self, sql: str, *values: object) -> list[R]:
        return records(self.RECORD, self._db, sql, *values)

    def _where(self, condition: str, *values: object) -> list[R]:
        return self._rows(f"SELECT * FROM {self.NAME} WHERE {condition}", *values)

    def _count(self, condition: str, *values: object) -> int:
        sql = f"SELECT count(*) FROM {self.NAME} WHERE {condition}"
        return int(self._db.execute(sql, values).fetchone()[0])

    def _values(self, sql: str, *values: object) -> list[Any]:
        """The first column of what is found."""
        return [row[0] for row in self._db.execute(sql, values)]

    def _write(self, sql: str, *values: object) -> int:
        """How many rows that changed."""
        return int(self._db.execute(sql, values).rowcount)

    def add(self, record: R) -> None:
        """Add one; a second time changes nothing, or fails by INSERT."""
        marks = ", ".join("?" * len(self._names))
        sql = f"{self.INSERT} INTO {self.NAME} ({', '.join(self._names)}) VALUES ({marks})"
        self._write(sql, *[_stored(getattr(record, name)) for name in self._names])

    def of(self, *keys: object) -> R | None:
        """The one with these KEYS, whatever its state."""
        return next(iter(self._where(self._same, *keys)), None)

    def change(self, record: R, **changes: object) -> None:
        """Change fields of one, in the database and in ``record``. Raises TypeError for a field
        that there is not."""
        self._change(record, "", changes)
        for name, value in changes.items():
            setattr(record, name, value)

    def _change(self, record: object, also: str, changes: dict[str, object]) -> int:
        """Change columns of the row with the keys of ``record``, where ``also`` holds."""
        if unknown := changes.keys() - set(self._names):
            raise TypeError(f"{self.NAME}: no field {', '.join(sorted(unknown))}")
        names = ", ".join(f"{name} = ?" for name in changes)
        return self._write(
            f"UPDATE {self.NAME} SET {names} WHERE {self._same} {also}",
            *map(_stored, changes.values()),
            *[getattr(record, name) for name in self.KEYS],
        )
