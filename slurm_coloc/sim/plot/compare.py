# SPDX-License-Identifier: Apache-2.0
"""Policies side by side, and an admin's month before and after."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from slurm_coloc.sim.plot.canvas import BLUE, GREY, HOUR, ORANGE, clock, figure, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: (figure, title, seconds or joules of its unit)
PANELS = (
    ("makespan_s", "Makespan, hours", HOUR),
    ("mean_wait_s", "Mean wait, minutes", 60.0),
    ("energy_mj", "Energy of the GPUs, MJ", 1.0),
    ("oom", "Out of memory, jobs", 1.0),
)
Points = Sequence[tuple[float, float]]
#: Equal parts of a month that are shown as their means: each job by itself is noise.
PARTS = 120


def bars(
    figures: Mapping[str, Mapping[str, float]],
    bound_s: float,
    title: str,
    spread: Mapping[str, Mapping[str, float]] | None = None,
) -> "Figure":
    """A bar for each policy in four panels; exclusive is grey, the bound a line. ``spread``:
    standard deviations of jittered runs."""
    names = list(figures)
    made = figure(12, 1.6 + 0.36 * len(names))
    made.suptitle(title, x=0.01, ha="left", fontsize=11)
    colours = [GREY if name == "exclusive" else BLUE for name in names]
    for axes, (key, panel, unit) in zip(made.subplots(1, 4, sharey=True), PANELS, strict=True):
        values = [figures[name][key] / unit for name in names]
        errors = [spread[name][key] / unit for name in names] if spread else None
        drawn = axes.barh(names, values, color=colours, xerr=errors, ecolor="black", capsize=2)
        axes.bar_label(drawn, [f"{value:.3g}" for value in values], padding=3, fontsize=8)
        axes.set_xlim(0, max([*values, 1e-9]) * 1.22 if any(values) else 1)
        if key == "makespan_s":
            axes.axvline(bound_s / unit, color=ORANGE, linestyle="--", linewidth=1.5)
            panel += " (dashed: bound)"
        tidy(axes, panel)
        axes.margins(y=0.02)
    made.axes[0].invert_yaxis()
    return made


def before_after(
    in_use: tuple[Points, Points], waiting: tuple[Points, Points], gpus: int, title: str
) -> "Figure":
    """GPUs in use and jobs that wait, over time, on whole GPUs and shared."""
    end_s = max((points[-1][0] for points in (*in_use, *waiting) if points), default=1.0)
    unit_s, unit = clock(end_s)
    made = figure(12, 6)
    made.suptitle(title, x=0.01, ha="left", fontsize=11)
    top, bottom = made.subplots(2, 1, sharex=True)
    part_s = end_s / PARTS
    for axes, pair in ((top, in_use), (bottom, waiting)):
        for points, colour, name in zip(pair, (GREY, BLUE), ("whole GPUs", "shared"), strict=True):
            axes.stairs(
                means(points, end_s), [i * part_s / unit_s for i in range(PARTS + 1)],
                color=colour, linewidth=1.3, label=name, baseline=None,
            )  # fmt: skip
        axes.set_ylim(bottom=0)
    top.axhline(gpus, color=ORANGE, linestyle="--", linewidth=1)
    tidy(top, f"GPUs in use (dashed: all {gpus}; means of {part_s / HOUR:.2g} hours)")
    tidy(bottom, "Jobs that wait", unit)
    bottom.set_xlim(0, end_s / unit_s)
    top.legend(loc="lower right", ncols=2, fontsize=8)
    return made


def means(points: Points, end_s: float) -> list[float]:
    """The mean of a line of steps in each of PARTS equal parts of the time."""
    sums = [0.0] * PARTS
    part_s = end_s / PARTS
    for (start, value), (end, _) in zip(points, [*points[1:], (end_s, 0.0)], strict=True):
        while start < end:
            part = min(PARTS - 1, int(start / part_s))
            upto = end if part == PARTS - 1 else min(end, (part + 1) * part_s)
            sums[part] += value * (upto - start)
            if upto <= start:  # a boundary that rounding has passed already
                upto = min(end, start + part_s * 1e-9)
            start = upto
    return [total / part_s for total in sums]
