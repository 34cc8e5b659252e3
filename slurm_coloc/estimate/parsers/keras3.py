# SPDX-License-Identifier: Apache-2.0
"""Keras 3's summary(): a box table drawn by rich.

A cell may go on over several lines of its row; class names may be cut with an ellipsis. Keras adds
the optimizer's variables to the total when the model is compiled and built.
"""

from collections.abc import Sequence

from slurm_coloc.estimate.keras_rows import Cells, bound_cells, keras_summary
from slurm_coloc.estimate.lexing import bound_rows, fail
from slurm_coloc.estimate.summary import Summary

_EDGES = "┃│|"


def _split(line: str) -> list[str] | None:
    body = line.strip()
    if not body or body[0] not in _EDGES or body[-1] not in _EDGES:
        return None
    return [part.strip(" ") for part in body[1:-1].replace("┃", "│").replace("|", "│").split("│")]


def _is_border(line: str) -> bool:
    body = line.strip()
    return bool(body) and not body.strip("┏┓┗┛┡┩┢┪├┤└┘┌┐╇╈╋┳┻┼┴┬━─+-=")


class Keras3:
    """The parser of Keras 3's box table."""

    name = "keras3"
    mark = "Layer (type"

    def starts(self, lines: Sequence[str], index: int) -> bool:
        """A boxed header with "Layer (type)"."""
        line = lines[index]
        if "Layer (type)" not in line:
            return False
        cells = _split(line)
        return cells is not None and cells[0].startswith("Layer (type)") and len(cells) >= 3

    def parse(self, lines: Sequence[str]) -> Summary:
        """See Parser.parse."""
        header = _split(lines[0]) or []
        shape_at = next((i for i, cell in enumerate(header) if cell.startswith("Output")), -1)
        count_at = next((i for i, cell in enumerate(header) if cell.startswith("Param")), -1)
        if shape_at < 0 or count_at < 0:
            raise fail("unknown_sizes", "the Keras table has no shapes or no parameters")
        rows: list[Cells] = []
        current: list[str] | None = None
        for index, line in enumerate(lines[1:], 1):
            cells = _split(line)
            if cells is None or _is_border(line):
                if current is not None:
                    rows.append(Cells(current[0], current[shape_at], current[count_at]))
                    current = None
                if line.strip() and not _is_border(line):
                    return keras_summary(self.name, rows, lines[index:])
                continue
            if len(cells) != len(header):
                raise fail("bad_row", f"row {len(rows) + 1} of the table cannot be read")
            if current is None:
                current = cells
            else:
                # Numbers may be cut anywhere; names are words.
                joined = [old + new for old, new in zip(current, cells, strict=True)]
                joined[0] = f"{current[0]} {cells[0]}".strip()
                bound_cells(*joined)
                current = joined
            bound_rows(rows)
        raise fail("truncated", "the Keras table has no footer: its end is missing")


PARSER = Keras3()
