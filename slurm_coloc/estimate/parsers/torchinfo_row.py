# SPDX-License-Identifier: Apache-2.0
"""One row of torchinfo's tree: its name, and the cells behind it."""

import re
from functools import lru_cache
from typing import NamedTuple

from slurm_coloc.estimate.lexing import (
    UNKNOWN_DIM,
    Shape,
    fail,
    parse_count,
    parse_shapes,
    remembered,
)
from slurm_coloc.estimate.tables import refuse_negative

_NAME = re.compile(
    r"(?P<tree>(?:[│|]? {4})*(?:[│|] {0,4})*(?:[├└+][─-]? ?)?)"
    r"(?P<kind>[^\s:()\[\]]{1,128})"
    r"(?: \((?P<var>[^()\s]{1,128})\))?"
    r"(?:: (?P<depth>\d{1,4})(?:-\d{1,7})?)?(?=\s|$)"
)
_MAX_DEPTH = 100  # real ones have 20; what walks a tree calls itself some four times a level
# A row without brackets in brackets, that is nearly every row.
_FLAT = re.compile(r"\[[^\[\](){}]*\]|\([^\[\](){}]*\)|[^ \[\](){}]+")
#: characters of what stands behind a row's name; longer ones are hostile and not remembered
_TAIL = 256


class Tail(NamedTuple):
    """What stands behind a row's name, shapes as printed. Most rows share theirs with others."""

    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    parameters: int
    recursive: bool
    kernel: int
    frozen: bool


class Row(NamedTuple):
    """One line of the tree."""

    kind: str
    depth: int
    tail: Tail


def row_of(line: str, columns: tuple[str, ...]) -> Row:
    """A line of the tree; ``columns``: what its cells are. Raises SummaryError bad_row, bad_shape
    or number_out_of_range."""
    match = _NAME.match(line)
    behind = line[match.end() :].strip() if match else ""
    tail = (_known if len(behind) <= _TAIL else _tail)(behind, columns) if match else None
    if match is None or tail is None:
        raise fail("bad_row", f"a row of the table cannot be read: {line.strip()[:60]!r}")
    tree, kind, printed = match.group("tree", "kind", "depth")
    depth = int(printed) if printed else (len(tree) + 3) // 5
    if depth > _MAX_DEPTH:
        raise fail("bad_row", "the tree is too deep")
    return Row(kind, depth, tail)


def _cells(text: str) -> list[str]:
    """Cells of a row: a bracketed list is one cell whatever blanks it holds. Linear."""
    flat = _FLAT.findall(text)
    if " ".join(flat) == " ".join(text.split()):  # no bracket is left over or touches a cell
        return flat
    cells: list[str] = []
    depth, current = 0, ""
    for char in text:
        if char == " " and depth == 0:
            if current:
                cells.append(current)
            current = ""
            continue
        current += char
        if char in "[({":
            depth += 1
        elif char in "])}":
            depth -= 1
    if depth != 0:
        raise fail("bad_shape", "the brackets of a shape do not close")
    if current:
        cells.append(current)
    return cells


def _tail(text: str, columns: tuple[str, ...]) -> Tail | None:
    """None where there are not as many cells as columns."""
    cells = _cells(text)
    if len(cells) != len(columns):
        return None
    cell = dict(zip(columns, cells, strict=True))
    count_cell = cell["count"]
    count = parse_count(count_cell)
    if count is None and count_cell not in ("--", "(recursive)", "(unused)", "0"):
        raise fail("bad_row", f"a parameter count cannot be read: {count_cell[:40]!r}")
    return Tail(
        inputs=_shapes(cell.get("input", "--")),
        outputs=_shapes(cell.get("output", "--")),
        parameters=count or 0,
        recursive=count_cell == "(recursive)",
        kernel=_kernel(cell.get("kernel", "--")),
        frozen=count is not None and count_cell.startswith("("),
    )


_known = lru_cache(maxsize=4096)(_tail)


@remembered
def _shapes(cell: str) -> tuple[Shape, ...]:
    if cell in ("--", "(recursive)"):
        return ()
    shapes = parse_shapes(cell)
    if shapes is None:
        raise fail("bad_row", f"a shape cannot be read: {cell[:40]!r}")
    refuse_negative(shapes)
    return shapes


@remembered
def _kernel(cell: str) -> int:
    """Elements of the kernel (9 for [3, 3]), 0 where none is printed."""
    count = parse_count(cell)
    if count is not None:
        return min(count, 10**6)
    shapes = parse_shapes(cell)
    if not shapes or UNKNOWN_DIM in shapes[0]:
        return 0
    # Linear layers print [in, out] or [in] here: two numbers too, told apart by the class.
    total = 1
    for dim in shapes[0]:
        total = min(total * dim, 10**12)
    return total
