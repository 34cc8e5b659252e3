# SPDX-License-Identifier: Apache-2.0
"""The picture of `coloc report JOB`: memory and activity over time in the terminal's characters."""

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import Any

from rich.text import Text

from slurm_coloc.cli import render

Values = Sequence[float | None]

ROWS = 5
SCALE = 8  # characters of a line before its first value
_BLOCKS = " ▁▂▃▄▅▆▇█"


def picture(answer: dict[str, Any], width: int) -> Iterator[Text]:
    """Memory and activity of a run over time; nothing where there are no figures. ``width``: of
    the terminal."""
    series = answer["series"]
    held = [None if mib is None else mib / 1024 for mib in (series or {}).get("memory_mib", ())]
    if len(held) < 2:
        return
    most = max(1, width - SCALE)
    length = render.lasted(series["step_s"] * len(held))
    top = max((answer["reserved_mib"] or 0) / 1024, *(gib or 0.0 for gib in held))
    yield Text(f"\nMemory, GiB, over {length}", style="bold")
    yield Text(chart(merged(held, most, max), top))
    if any(value is not None for value in series["smact"]):
        yield Text("SM activity, %", style="bold")
        percent = [None if value is None else value * 100 for value in series["smact"]]
        yield Text(chart(merged(percent, most, fmean), 100))


def merged(
    values: Values, most: int, one_of: Callable[[Sequence[float]], float]
) -> list[float | None]:
    """At most so many values: as many neighbours as it takes are one, None where none is known."""
    size = math.ceil(len(values) / most)
    parts = (values[begin : begin + size] for begin in range(0, len(values), size))
    known = ([value for value in part if value is not None] for part in parts)
    return [one_of(part) if part else None for part in known]


def chart(values: Values, top: float, rows: int = ROWS) -> str:
    """One column a value, ``rows`` lines high; the scale from 0 to ``top`` at the left. None leaves
    a gap; what is above ``top`` is cut there."""
    eighths = [
        None
        if value is None
        else round(min(max(value / top, 0.0), 1.0) * rows * 8)
        if top > 0
        else 0
        for value in values
    ]
    lines = []
    for row in range(rows - 1, -1, -1):
        label = f"{top:.3g}" if row == rows - 1 else "0" if row == 0 else ""
        cells = (
            " " if each is None else _BLOCKS[min(max(each - row * 8, 0), 8)] for each in eighths
        )
        lines.append(f"{label:>6} |{''.join(cells)}")
    return "\n".join(line.rstrip() for line in lines)
