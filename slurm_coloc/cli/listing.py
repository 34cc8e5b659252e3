# SPDX-License-Identifier: Apache-2.0
"""Tables of jobs and GPUs that fit the terminal: columns that tell least go first, then long cells
are cut. Where stdout is no terminal nothing is left out, for whoever greps."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from slurm_coloc.cli.render import NONE, Row, console, plain

GAP = 2  # blanks between columns


@dataclass(frozen=True, slots=True)
class Column:
    """``of``: the cell of a row. ``rank``: of columns that a narrow terminal does without the
    highest goes first; 0: it stays. ``least``: characters that its cells may be cut to; 0: they are
    not cut."""

    name: str
    of: Callable[[Row], object]
    right: bool = False
    rank: int = 0
    least: int = 0


def listing(columns: Sequence[Column], rows: Sequence[Row], width: int | None) -> list[str]:
    """Lines of a table, the names first. ``width``: of the terminal, None for none."""
    shown = [(one, [plain(one.of(row)) for row in rows]) for one in columns]
    if width is not None:
        shown = _fitting(shown, width)
    widths = [_natural(column, cells) for column, cells in shown]
    if width is not None:
        _cut(shown, widths, width)
    lines = [[column.name for column, _ in shown]]
    lines += [[cells[number] for _, cells in shown] for number in range(len(rows))]
    return [
        (" " * GAP)
        .join(
            _cell(column, text, size)
            for (column, _), text, size in zip(shown, line, widths, strict=True)
        )
        .rstrip()
        for line in lines
    ]


Shown = list[tuple[Column, list[str]]]


def _natural(column: Column, cells: Sequence[str]) -> int:
    return max(cell_len(text) for text in (column.name, *cells))


def _needed(shown: Shown) -> int:
    """Columns of the terminal that it takes where cells are cut to twice the least that they may
    be: a column that tells less goes before the others are hard to read."""
    sizes = (
        min(_natural(one, cells), max(2 * one.least, len(one.name)) if one.least else 10_000)
        for one, cells in shown
    )
    return sum(sizes) + GAP * (len(shown) - 1)


def _fitting(shown: Shown, width: int) -> Shown:
    """Without what is empty everywhere, where room is short, then without the highest ranks."""
    while _needed(shown) > width and (left := [one for one, _ in shown if one.rank]):
        empty = [one for one, cells in shown if one.rank and set(cells) <= {NONE}]
        goes = max(empty or left, key=lambda one: one.rank)
        shown = [(one, cells) for one, cells in shown if one is not goes]
    return shown


def _cut(shown: Shown, widths: list[int], width: int) -> None:
    """Take from the widest cells that may be cut until the table fits, or none is left."""
    over = sum(widths) + GAP * (len(widths) - 1) - width
    while over > 0:
        may = [
            (widths[i] - max(one.least, len(one.name)), i)
            for i, (one, _) in enumerate(shown)
            if one.least
        ]
        most, where = max(may, default=(0, 0))
        if most <= 0:
            return
        widths[where] -= 1
        over -= 1


def _cell(column: Column, text: str, size: int) -> str:
    if cell_len(text) > size:
        return set_cell_size(text, size - 1) + "…"
    blanks = " " * (size - cell_len(text))
    return blanks + text if column.right else text + blanks


def show_listing(columns: Sequence[Column], rows: Sequence[Row], empty: str) -> None:
    """Print the table; where it has no rows, ``empty``: what would fill it."""
    out = console()
    if not rows:
        out.print(Text(empty))
        return
    head, *lines = listing(columns, rows, out.width if out.is_terminal else None)
    out.print(Text(head, style="bold"), soft_wrap=True)
    for line in lines:
        out.print(Text(line), soft_wrap=True)
