# SPDX-License-Identifier: Apache-2.0
"""Estimates against measured memory, as pictures. Needs matplotlib."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from estimator.evaluate.judging import Case, names
from slurm_coloc.sim.plot.canvas import BLUE, GREEN, GREY, ORANGE, RED, figure, save, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GIB = 1024
COLOURS = {"cnn": BLUE, "transformer": ORANGE, "mlp": GREEN}
LABELS = {"cnn": "convolutional", "transformer": "Transformer", "mlp": "others"}
PURPLE = "#CC79A7"  #: Okabe and Ito's, as the others
#: methods of the second picture: what is drawn is at most so many
METHODS = (
    ("text", "text (ours)", BLUE, "o"),
    ("traced", "recorded (ours)", GREEN, "s"),
    ("GPUMemNet, as published", "GPUMemNet", ORANGE, "^"),
    ("Horus, as published", "Horus", RED, "D"),
    ("FakeTensor, as published", "FakeTensor", PURPLE, "v"),
)


class Point(NamedTuple):
    """A measured run and its estimate (MiB), and the kind of its model."""

    kind: str
    measured_mib: float
    mib: float
    upper_mib: float


def against(panels: Sequence[tuple[str, Sequence[Point]]], path: Path) -> None:
    """A panel for each way to estimate: estimates over measurements, dots by kind of model; below
    the line of ones an estimate is too small. The second line is the bound that most models have:
    a job right of it takes more than it reserved."""
    made = figure(4.4 * len(panels), 4.3)
    ends = _ends([x for _, points in panels for one in points for x in (one.measured_mib, one.mib)])
    for axes, (title, points) in zip(made.subplots(1, len(panels), squeeze=False)[0], panels,
                                     strict=True):  # fmt: skip
        for kind, colour in COLOURS.items():
            some = [one for one in points if one.kind == kind]
            if some:
                axes.scatter([one.measured_mib / GIB for one in some],
                             [one.mib / GIB for one in some], s=7, color=colour, alpha=0.45,
                             linewidths=0, rasterized=True,
                             label=f"{LABELS[kind]} ({len(some)})")  # fmt: skip
        axes.plot(ends, ends, color="black", linewidth=0.9, label="as measured")
        bound = _bound(points)
        axes.plot([upper / GIB for _, upper in bound], [mib / GIB for mib, _ in bound], color=GREY,
                  linewidth=1.2, linestyle="--", label="bound (median)")  # fmt: skip
        _powers(axes, ends, ends)
        axes.set_aspect("equal", adjustable="box")
        tidy(axes, title, "measured, GiB", "estimated, GiB")
        axes.legend(fontsize=8, frameon=False, loc="upper left", markerscale=2)
    save(made, path)


def methods(cases: Sequence[Case], path: Path) -> None:
    """All methods on the same runs: what each would reserve, over what was measured."""
    made = figure(7.0, 5.0)
    axes = made.subplots()
    drawn = [one for one in METHODS if one[0] in names(cases)]
    told = [case.told[name].upper_mib for case in cases for name, *_ in drawn if name in case.told]
    ends = _ends([*told, *(case.measured_mib for case in cases)])
    for name, label, colour, marker in drawn:
        some = [(case.measured_mib, case.told[name].upper_mib) for case in cases
                if name in case.told]  # fmt: skip
        axes.scatter([measured / GIB for measured, _ in some], [mib / GIB for _, mib in some],
                     s=26, color=colour, marker=marker, alpha=0.85, linewidths=0,
                     label=f"{label}: {sum(mib < measured for measured, mib in some)} of"
                     f" {len(some)} too small")  # fmt: skip
    axes.plot(ends, ends, color="black", linewidth=0.9)
    _powers(axes, _ends([case.measured_mib for case in cases]), ends)
    tidy(axes, f"{len(cases)} real configurations of the thesis", "measured, GiB", "reserved, GiB")
    axes.legend(fontsize=8, frameon=False, loc="lower right")
    save(made, path)


def _bound(points: Sequence[Point]) -> list[tuple[float, float]]:
    """(estimate, median bound) over ten parts of the estimates."""
    order = sorted(points, key=lambda one: one.mib)
    many = max(1, len(order) // 10)
    parts = [order[at : at + many] for at in range(0, len(order), many)]
    found = []
    for part in parts:
        ratios = sorted(one.upper_mib / one.mib for one in part)
        middle = part[len(part) // 2].mib
        found.append((middle, middle * ratios[len(ratios) // 2]))
    return found


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """Of an axis (GiB), a little beyond all values."""
    return min(values) / GIB / 1.15, max(values) / GIB * 1.15


def _powers(axes: "Axes", across: tuple[float, float], up: tuple[float, float]) -> None:
    """Both axes in powers of two."""
    for axis, scale, limits, ends in (
        (axes.xaxis, axes.set_xscale, axes.set_xlim, across),
        (axes.yaxis, axes.set_yscale, axes.set_ylim, up),
    ):
        scale("log", base=2)
        limits(*ends)
        ticks = [tick for tick in _ticks(ends[1]) if ends[0] <= tick <= ends[1]]
        axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.set_minor_locator(_none())
    axes.grid(color="#E4E4E4", linewidth=0.6)
    axes.set_axisbelow(True)


def _ticks(end: float) -> list[float]:
    return [2.0**power for power in range(-1, math.ceil(math.log2(end)) + 1)]


def _none() -> "object":
    from matplotlib.ticker import NullLocator

    return NullLocator()
