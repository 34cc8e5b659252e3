# SPDX-License-Identifier: Apache-2.0
"""The text that a person reads above the block: torchinfo's table, else print(model)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, NamedTuple

import torch

from slurm_coloc.summarize.rows import Count, Counts, Row, Rows

log = logging.getLogger(__name__)
DEPTH = 20  #: levels that are shown
NAME_WIDTH, WIDTH, INDENT = 40, 25, 5  #: of torchinfo's columns, and of a level
_TITLES = ("Input Shape", "Output Shape", "Param #", "Kernel Shape")
_UNITS = ((10**12, "T"), (10**9, "G"), (10**6, "M"))


def table(
    model: torch.nn.Module, args: tuple[Any, ...] = (), keywords: dict[str, Any] | None = None
) -> str:
    """Of the model and one batch, inside the mode that made them: runs the model once more. Never
    raises: whatever does not run is printed as a tree without shapes."""
    try:
        with Rows(model) as rows, torch.no_grad():
            model(*args, **(keywords or {}))
    except Exception as err:  # a table is for people: no reason to fail
        log.info("no table: %s", err)
        return f"{model}\n{_totals(model)}\n"
    given = [x for x in (*args, *(keywords or {}).values()) if isinstance(x, torch.Tensor)]
    return shown(model, rows, [x.untyped_storage().nbytes() for x in given])


def shown(model: torch.nn.Module, rows: Rows, read: Iterable[int]) -> str:
    """Of a model that ran with ``rows`` and read tensors of so many bytes. Never raises: see
    table."""
    try:
        return _text(rows.taken(), sum(read))
    except Exception as err:  # see table
        log.info("no table: %s", err)
        return f"{model}\n{_totals(model)}\n"


class _TableRow(NamedTuple):
    """A row with what it counts. ``own``: parameters that no row below it has."""

    row: Row
    leaf: bool
    held: Count
    own: int
    own_trained: int


def _text(rows: Sequence[Row], read: int) -> str:
    lines = _lines(rows)
    titles = _numbered(rows)
    longest = max(len(x) + row.depth * INDENT + 1 for x, row in zip(titles, rows, strict=True))
    width = NAME_WIDTH if longest < NAME_WIDTH else -(-longest // INDENT) * INDENT
    rule = "=" * (len(_TITLES) * WIDTH + width)
    out = [rule, _cells("Layer (type:depth-idx)", _TITLES, width), rule]
    for title, line in zip(titles, lines, strict=True):
        depth = line.row.depth
        if depth <= DEPTH:
            tree = ("", "├─")[depth] if depth < 2 else "│    " * (depth - 1) + "└─"
            out.append(_cells(f"{tree}{title}", _values(line), width))
    return "\n".join([*out, rule, *_footer(lines, read, rule), rule]) + "\n"


def _lines(rows: Sequence[Row]) -> list[_TableRow]:
    """What the rows below hold is taken from a row's own: in one pass from the end."""
    counts = Counts()
    lines: list[_TableRow] = []
    ends: list[tuple[int, int, int]] = []  # depth, and the sums from that row to the last
    elements = trained = 0
    for row in reversed(rows):
        while ends and ends[-1][0] > row.depth:
            ends.pop()
        held = counts.of(row.module)
        leaf = not any(row.module.children())
        below, below_trained = (elements, trained) if not ends else (
            elements - ends[-1][1], trained - ends[-1][2],
        )  # fmt: skip
        own = held.elements if leaf else held.elements - below
        own_trained = held.trained if leaf else held.trained - below_trained
        lines.append(_TableRow(row, leaf, held, own, own_trained))
        if not row.again:
            elements, trained = elements + own, trained + own_trained
        ends.append((row.depth, elements, trained))
    return lines[::-1]


def _numbered(rows: Sequence[Row]) -> list[str]:
    """Class, level and number within the level; the model has none."""
    many: dict[int, int] = {}
    titles: dict[int, str] = {}
    for row in rows:
        many[row.depth] = many.get(row.depth, 0) + 1
        name = type(row.module).__name__
        titles[id(row)] = f"{name}: {row.depth}-{many[row.depth]}" if row.depth else name
    return [titles[id(row)] for row in rows]


def _values(line: _TableRow) -> tuple[str, ...]:
    row = line.row
    kernel = getattr(row.module, "kernel_size", None)
    kernel = list(kernel) if isinstance(kernel, (tuple, list)) else kernel
    kernel = kernel if isinstance(kernel, (int, list)) else None
    return (str(row.given or "--"), str(row.made or "--"), _count(line), str(kernel or "--"))


def _count(line: _TableRow) -> str:
    if not line.held.elements:
        return "--"
    if line.row.again:
        return "(recursive)"
    if line.leaf or line.row.depth == DEPTH:
        text = f"{line.held.elements:,}"
        return text if line.held.trained else f"({text})"
    return f"{line.own:,}" if line.own > 0 else "--"


def _cells(name: str, values: Sequence[str], width: int) -> str:
    return f"{name:<{width}} {' '.join(f'{x:<{WIDTH}}' for x in values)}".rstrip()


def _products(row: Row) -> int:
    """torchinfo's count of multiplications and additions; 0 where nothing has a shape."""
    if not row.made:
        return 0
    total = 0
    for name, one in row.module.named_parameters():
        if name not in ("weight", "bias"):
            # Recurrent modules number theirs.
            times = prod(row.made[:2]) if "weight" in name or "bias" in name else 0
        elif "Conv" in type(row.module).__name__:
            times = row.made[0] * prod(row.made[2:])
        else:
            times = row.made[0]
        total += times * one.numel()
    return total


def _footer(lines: Sequence[_TableRow], read: int, rule: str) -> list[str]:
    first = [line for line in lines if not line.row.again]
    leaves = [line for line in lines if line.leaf]
    total = sum(max(0, line.own) for line in first)
    trained = sum(max(0, line.own_trained) for line in first)
    products = sum(_products(line.row) for line in leaves)
    passed = 2 * sum(line.row.made_bytes for line in leaves if line.held.elements)
    held = sum(line.held.size for line in first if line.leaf)
    return [
        *_counted(total, trained),
        f"Total mult-adds{_scaled(products)}",
        rule,
        f"Input size (MB): {read / 1e6:.2f}",
        f"Forward/backward pass size (MB): {passed / 1e6:.2f}",
        f"Params size (MB): {held / 1e6:.2f}",
        f"Estimated Total Size (MB): {(read + passed + held) / 1e6:.2f}",
    ]


def _scaled(number: int) -> str:
    size, unit = next((one for one in _UNITS if number >= one[0]), _UNITS[-1])
    part = number / size
    return f" ({unit}): {part:,.0f}" if part.is_integer() else f" ({unit}): {part:,.2f}"


def _counted(total: int, trained: int) -> list[str]:
    return [
        f"Total params: {total:,}",
        f"Trainable params: {trained:,}",
        f"Non-trainable params: {total - trained:,}",
    ]


def _totals(model: torch.nn.Module) -> str:
    """Below print(model)."""
    total = sum(p.numel() for p in model.parameters())
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    rule = "=" * 64
    return "\n".join([rule, *_counted(total, trained), rule])
