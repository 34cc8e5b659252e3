# SPDX-License-Identifier: Apache-2.0
"""Pictures of a simulation: what they have in common. matplotlib is loaded when one is drawn.

Colours are told apart by people who see few: Okabe and Ito's palette (jfly.uni-koeln.de/color) for
kinds, cividis for amounts. Figures are drawn by Agg, so no display is needed.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_coloc.errors import UsageFault

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#8C8C8C"
PALE = "#CFE3F1"
FORMATS = ("png", "svg", "pdf")
HOUR = 3600.0
DAY = 86400.0


def figure(width: float, height: float) -> "Figure":
    """An empty figure (inches); raises UsageFault where matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageFault(
            "--plot needs matplotlib: apt install python3-matplotlib, or pip install matplotlib"
        ) from None
    return Figure(figsize=(width, height), layout="constrained")


def check_path(path: Path) -> None:
    """Raise UsageFault early where a picture could not be written to ``path``."""
    if path.suffix.lower().removeprefix(".") not in FORMATS:
        raise UsageFault(f"--plot {path}: the name must end in .{', .'.join(FORMATS)}")
    if not path.parent.is_dir():
        raise UsageFault(f"--plot {path}: no such folder")
    figure(1, 1)


def save(drawn: "Figure", path: Path) -> None:
    """Write a figure in the format that its name says; raises UsageFault."""
    try:
        drawn.savefig(path, dpi=150)
    except OSError as err:
        raise UsageFault(f"--plot {path}: cannot be written: {err.strerror or err}") from err


def clock(end_s: float) -> tuple[float, str]:
    """(seconds of a unit, its name) for a time axis of that length."""
    return (DAY, "days") if end_s > 3 * DAY else (HOUR, "hours")


def tidy(axes: "Axes", title: str, x: str = "", y: str = "") -> None:
    """Title on the left, no frame above and to the right, light lines."""
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def steps(points: Iterable[tuple[float, float]], end_s: float) -> tuple[list[float], list[float]]:
    """Times and values of a line of steps that goes on to ``end_s``."""
    times: list[float] = []
    values: list[float] = []
    for when, value in points:
        if times and when == times[-1]:
            values[-1] = value
            continue
        times.append(when)
        values.append(value)
    return [*times, end_s], [*values, values[-1] if values else 0.0]
