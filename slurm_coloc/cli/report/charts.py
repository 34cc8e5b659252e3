# SPDX-License-Identifier: Apache-2.0
"""Pictures as SVG: columns, a map of estimate against peak, lines over time."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple
from xml.etree import ElementTree as ET

from slurm_coloc.cli.report.markup import element

WIDTH, HEIGHT = 720, 220
LEFT, RIGHT, TOP, BOTTOM = 64, 8, 14, 26
INNER_W, INNER_H = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
STEPS = 4  # lines of the grid
LABELS = 8  # below a picture
CELLS = 40  # of the map, in each direction


class Column(NamedTuple):
    """``parts``: class and value of what is piled up; ``about``: shown where the pointer is."""

    label: str
    parts: tuple[tuple[str, float], ...]
    about: str


def _svg(*children: ET.Element, about: str, height: int = HEIGHT) -> ET.Element:
    box = f"0 0 {WIDTH} {height}"
    return element("svg", element("title", about), *children, viewBox=box, role="img")


def nice(top: float) -> float:
    """The next of 1, 2, 4, 6, 8 and their tenfold: the end of an axis, whose quarters are round."""
    if top <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(top))
    return next(
        step * power for step in (1.0, 2.0, 4.0, 6.0, 8.0, 10.0) if step * power >= top * 0.9999
    )


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _grid(top: float, unit: str = "") -> list[ET.Element]:
    """Lines and labels from 0 to ``top``."""
    found = []
    for step in range(STEPS + 1):
        y = TOP + INNER_H * (1 - step / STEPS)
        kind = "grid" if step else "axis"
        line = f"M{LEFT} {_number(y)}H{WIDTH - RIGHT}"
        label = _figure(top * step / STEPS) + (unit if step == STEPS else "")
        found.append(element("path", d=line, class_=kind))
        found.append(element("text", label, x=LEFT - 6, y=_number(y + 4), text_anchor="end"))
    return found


def columns(found: Sequence[Column], about: str, unit: str = "") -> ET.Element:
    """A column for each, with labels below where there is room."""
    top = nice(max((sum(value for _, value in one.parts) for one in found), default=0.0))
    wide = INNER_W / max(1, len(found))
    every = max(1, math.ceil(len(found) / LABELS))
    shapes = _grid(top, unit)
    for number, one in enumerate(found):
        x, y = LEFT + wide * number, float(TOP + INNER_H)
        rects = []
        for kind, value in one.parts:
            high = INNER_H * value / top
            if high <= 0:
                continue
            y -= high
            rects.append(
                element(
                    "rect",
                    x=_number(x + wide * 0.1),
                    y=_number(y),
                    width=_number(max(0.5, wide * 0.8)),
                    height=_number(high),
                    class_=kind,
                )
            )
        shapes.append(element("g", element("title", one.about), *rects))
        if number % every == 0:
            middle = _number(x + wide / 2)
            shapes.append(element("text", one.label, x=middle, y=HEIGHT - 6, text_anchor="middle"))
    return _svg(*shapes, about=about)


def near(pairs: Sequence[tuple[int, int]], about: str) -> ET.Element:
    """A map of estimates (across) and peaks (up), both in GiB and logarithmic, darker where there
    are more; on the line both are equal. Its size does not grow with the number of runs."""
    high = INNER_W // 2 + TOP + BOTTOM
    low = min((min(pair) for pair in pairs), default=1024)
    first = math.floor(math.log2(max(1, low) / 1024))
    most = max((max(pair) for pair in pairs), default=1024)
    last = max(first + 1, math.ceil(math.log2(max(1, most) / 1024)))

    def part(mib: int) -> float:
        return (math.log2(max(1, mib) / 1024) - first) / (last - first)

    def cell(mib: int) -> int:
        return min(CELLS - 1, max(0, int(part(mib) * CELLS)))

    size_x, size_y = INNER_W / CELLS, (high - TOP - BOTTOM) / CELLS
    counts = Counter((cell(estimate), cell(peak)) for estimate, peak in pairs)
    darkest = max(counts.values(), default=1)
    shapes = []
    for power in range(first, last + 1):
        at = (power - first) / (last - first)
        x, y = LEFT + at * INNER_W, TOP + (1 - at) * (high - TOP - BOTTOM)
        label = f"{2.0**power:g}"
        shapes += [
            element("path", d=f"M{_number(x)} {TOP}V{high - BOTTOM}", class_="grid"),
            element("path", d=f"M{LEFT} {_number(y)}H{WIDTH - RIGHT}", class_="grid"),
            element("text", label, x=_number(x), y=high - 6, text_anchor="middle"),
            element("text", label, x=LEFT - 6, y=_number(y + 4), text_anchor="end"),
        ]
    for (across, up), count in sorted(counts.items()):
        kind = "bad" if up > across else "share"
        words = f"{count} run{'s' if count != 1 else ''}"
        shapes.append(
            element(
                "rect",
                element("title", words),
                x=_number(LEFT + across * size_x),
                y=_number(high - BOTTOM - (up + 1) * size_y),
                width=_number(size_x),
                height=_number(size_y),
                class_=kind,
                opacity=_number(0.25 + 0.75 * math.sqrt(count / darkest)),
            )
        )
    shapes.append(
        element("path", d=f"M{LEFT} {high - BOTTOM}L{WIDTH - RIGHT} {TOP}", class_="bound")
    )
    return _svg(*shapes, about=about, height=high)


def lines(
    drawn: Sequence[tuple[Sequence[float | None], float, str]],
    labels: tuple[str, str],
    about: str,
    unit: str = "",
) -> ET.Element:
    """Several series over one time: values, seconds between two of them, and the class of each."""
    known = [value for values, _, _ in drawn for value in values if value is not None]
    end = nice(max([*known, 1e-9]))
    longest_s = max(len(values) * step_s for values, step_s, _ in drawn)
    shapes = _grid(end, unit)
    for values, step_s, kind in drawn:
        shapes.append(_path(values, INNER_W * step_s / longest_s, end, kind))
    return _svg(*shapes, *_ends(labels), about=about)


def _ends(labels: tuple[str, str]) -> tuple[ET.Element, ET.Element]:
    """What stands below a picture at its begin and its end."""
    return (
        element("text", labels[0], x=LEFT, y=HEIGHT - 6),
        element("text", labels[1], x=WIDTH - RIGHT, y=HEIGHT - 6, text_anchor="end"),
    )


def _path(values: Sequence[float | None], step: float, end: float, kind: str) -> ET.Element:
    """Values at every ``step`` of the width; None leaves a gap."""
    path, pen = [], "M"
    for number, value in enumerate(values):
        if value is None:
            pen = "M"
            continue
        y = TOP + INNER_H * (1 - min(1.0, value / end))
        path.append(f"{pen}{_number(LEFT + step * number)} {_number(y)}")
        pen = "L"
    return element("path", d="".join(path) or f"M{LEFT} {TOP}", class_=kind)


def line(
    values: Sequence[float | None],
    kind: str,
    labels: tuple[str, str],
    about: str,
    bound: float | None = None,
    top: float | None = None,
    unit: str = "",
) -> ET.Element:
    """Values over time, ``labels`` at begin and end, and a bound; None leaves a gap."""
    known = [value for value in values if value is not None]
    end = nice(max([*known, bound or 0.0, 1e-9])) if top is None else top
    step = INNER_W / max(1, len(values) - 1)
    shapes = [*_grid(end, unit), _path(values, step, end, kind)]
    if bound is not None:
        y = TOP + INNER_H * (1 - min(1.0, bound / end))
        shapes.append(element("path", d=f"M{LEFT} {_number(y)}H{WIDTH - RIGHT}", class_="bound"))
    return _svg(*shapes, *_ends(labels), about=about)
