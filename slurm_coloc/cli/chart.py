# SPDX-License-Identifier: Apache-2.0
"""A series as a small picture of block characters, for a terminal."""

from collections.abc import Sequence

ROWS = 5
_BLOCKS = " ▁▂▃▄▅▆▇█"


def chart(values: Sequence[float | None], top: float, rows: int = ROWS) -> str:
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
        label = f"{top:.4g}" if row == rows - 1 else "0" if row == 0 else ""
        cells = (
            " " if each is None else _BLOCKS[min(max(each - row * 8, 0), 8)] for each in eighths
        )
        lines.append(f"{label:>6} |{''.join(cells)}")
    return "\n".join(line.rstrip() for line in lines)
