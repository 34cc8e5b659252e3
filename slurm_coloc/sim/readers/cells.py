# SPDX-License-Identifier: Apache-2.0
"""A table in a file, cell by cell: whatever is wrong is named by file, line and column."""

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal

from slurm_coloc.errors import UsageFault

#: no time or size in a trace is larger (seconds: 300 years; MiB: 9 PiB); typing mistakes are
HUGE = 1e10


class Cells:
    """One line of a table. Spaces around a value do not count; a column that the file does not
    have reads as empty."""

    def __init__(self, where: str, values: Mapping[str, str]) -> None:
        self.where, self._values = where, values

    def fault(self, column: str, wrong: str) -> UsageFault:
        """The error that names this line and a column."""
        text = self.text(column)
        return UsageFault(f"{self.where}, column {column}: {text[:60]!r} {wrong}")

    def text(self, column: str) -> str:
        """The value, "" for none."""
        return self._values.get(column, "")

    def number(self, column: str, low: float, high: float = HUGE) -> float:
        """A finite number within bounds; raises UsageFault."""
        try:
            value = float(self.text(column))
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            most = "or more" if high == HUGE and not value > high else f"to {high:g}"
            raise self.fault(column, f"is not a number of {low:g} {most}")
        return value

    def maybe(self, column: str, low: float, high: float = HUGE) -> float | None:
        """The same; None for an empty cell."""
        return self.number(column, low, high) if self.text(column) else None

    def moment(self, column: str, example: str) -> float:
        """A time such as ``example`` in seconds of the file's own clock; raises UsageFault."""
        try:
            found = datetime.fromisoformat(self.text(column))
            return (found - datetime(1970, 1, 1)).total_seconds()
        except (ValueError, TypeError):
            raise self.fault(column, f"is not a time such as {example}") from None

    def whole(self, column: str, low: int, high: float = HUGE) -> int:
        """A whole number within bounds (3 and 3.0, not 3.5)."""
        value = self.number(column, low, high)
        if value != int(value):
            raise self.fault(column, "is not a whole number")
        return int(value)


class Table:
    """A text table with a header. ``needed``: columns that it must have; ``hint``: what is said
    where one is missing. With commas (CSV) cells may stand in quotation marks; with another
    delimiter (sacct) they never do, and columns are named in any case. Raises UsageFault where the
    file cannot be read or has no such columns."""

    def __init__(
        self, path: Path, needed: Sequence[str], delimiter: str = ",", hint: str = ""
    ) -> None:
        self._path, self._needed, self._hint = path, needed, hint
        self._delimiter, self._quoted = delimiter, delimiter == ","
        self.columns: list[str] = []

    def rows(self) -> Iterator[Cells]:
        """Each line that is not empty; the header is in ``columns`` when the first one comes."""
        line = 1
        try:
            # A byte order mark is what some spreadsheets begin with.
            with self._path.open(newline="", encoding="utf-8-sig") as file:
                quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if self._quoted else csv.QUOTE_NONE
                lines = csv.reader(file, delimiter=self._delimiter, quoting=quoting, strict=True)
                for cells in lines:
                    line = lines.line_num
                    values = [cell.strip() for cell in cells]
                    if not any(values):
                        continue
                    if self.columns:
                        yield self._row(values, line)
                    else:
                        self._header(values)
                if not self.columns:
                    self._header([])
        except OSError as err:
            raise UsageFault(f"{self._path}: cannot be read: {err.strerror or err}") from err
        except UnicodeDecodeError as err:
            raise UsageFault(f"{self._path}: is not UTF-8 text: {err.reason}") from err
        except csv.Error as err:
            raise UsageFault(f"{self._path}, line {line + 1}: {err}") from err

    def _header(self, names: list[str]) -> None:
        if not self._quoted:
            names = [name.lower() for name in names]
        twice = {name for name in names if name and names.count(name) > 1}
        if twice:
            raise UsageFault(f"{self._path}: column {', '.join(sorted(twice))} stands there twice")
        missing = [name for name in self._needed if name not in names]
        if missing:
            raise UsageFault(f"{self._path}: no column {', '.join(missing)}{self._hint}")
        self.columns = names

    def _row(self, values: list[str], line: int) -> Cells:
        where = f"{self._path}, line {line}"
        while self._quoted and len(values) > len(self.columns) and not values[-1]:
            values.pop()  # a comma too many at the end of a line
        if len(values) != len(self.columns):
            raise UsageFault(f"{where}: {len(values)} values for {len(self.columns)} columns")
        return Cells(where, dict(zip(self.columns, values, strict=True)))
