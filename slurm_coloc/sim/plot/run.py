# SPDX-License-Identifier: Apache-2.0
"""One run as a picture: which job was on which GPU, and the memory and SM activity of each GPU."""

import heapq
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from slurm_coloc.sim.machine import Machine
from slurm_coloc.sim.outcome import Outcome, Piece
from slurm_coloc.sim.page.figures import sums
from slurm_coloc.sim.plot.canvas import BLUE, GREEN, GREY, PALE, RED, clock, figure, steps, tidy
from slurm_coloc.sim.telemetry import History

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

#: With more GPUs a line for each cannot be read: an image shows them.
MOST_LINES = 8
COLUMNS = 600
MIB = 1024
#: points of an inch, the smallest letters that can be read, and the inches that time has
POINTS, LEAST_POINTS, WIDTH = 72, 4.5, 10.3


def draw(outcome: Outcome, machine: Machine, title: str) -> "Figure":
    """The picture of an outcome that was recorded (Setting.record)."""
    many = len(machine.devices) > MOST_LINES
    rows = len(machine.devices)
    tall = min(10.0, 1.0 + (0.18 if many else 1.0) * rows)
    below = 5.0 if many else 1.1 * rows
    made = figure(12, tall + below)
    made.suptitle(title, x=0.01, ha="left", fontsize=11)
    grid = made.add_gridspec(2, 1, height_ratios=(tall, below))
    _gantt(made.add_subfigure(grid[0]).subplots(), outcome, machine, tall)
    lower = made.add_subfigure(grid[1])
    if many:
        _images(lower, outcome, machine)
    else:
        _lines(lower, outcome, machine)
    return made


def lanes(pieces: Iterable[Piece]) -> Iterator[tuple[Piece, int, int]]:
    """Each piece of one GPU with its lane and the number of lanes of the stretch that it is in: a
    stretch ends where the GPU has no job."""
    stretch: list[tuple[Piece, int]] = []
    free: list[int] = []
    used: list[tuple[float, int]] = []
    count = 0
    for piece in sorted(pieces, key=lambda one: (one.start_s, one.job_id)):
        while used and used[0][0] <= piece.start_s:
            heapq.heappush(free, heapq.heappop(used)[1])
        if not used:
            yield from ((one, lane, count) for one, lane in stretch)
            stretch, free, count = [], [], 0
        lane = heapq.heappop(free) if free else count
        count = max(count, lane + 1)
        heapq.heappush(used, (piece.end_s, lane))
        stretch.append((piece, lane))
    yield from ((one, lane, count) for one, lane in stretch)


def names(machine: Machine) -> list[str]:
    """GPUs as people count them; instances of one GPU with a letter."""
    each: dict[int, int] = {}
    for device in machine.devices:
        each[device.gpu] = each.get(device.gpu, 0) + 1
    points: dict[int, int] = {}
    out = []
    for device in machine.devices:
        place = points.get(device.gpu, 0)
        points[device.gpu] = place + 1
        out.append(f"GPU {device.gpu}" + (chr(97 + place) if each[device.gpu] > 1 else ""))
    return out


def _gantt(axes: "Axes", outcome: Outcome, machine: Machine, tall: float) -> None:
    """A row for each GPU, a bar for each run on it. ``tall``: inches."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable

    shades = colormaps["cividis"]
    span_s = max(outcome.makespan_s, 1.0)
    unit_s, unit = clock(span_s)
    jobs = {record.job.id: record.job for record in outcome.records}
    last: dict[int, float] = {}
    for piece in outcome.pieces:
        last[piece.job_id] = max(piece.end_s, last.get(piece.job_id, 0.0))
    rows = len(machine.devices)
    for slot in range(rows):
        mine = [piece for piece in outcome.pieces if piece.slot == slot]
        for piece, lane, count in lanes(mine):
            smact, height = jobs[piece.job_id].activity.smact, 0.86 / count
            bottom, begin = slot - 0.43 + lane * height, piece.start_s / unit_s
            length = (piece.end_s - piece.start_s) / unit_s
            inches = WIDTH * length * unit_s / span_s
            failed = piece.end_s < last[piece.job_id]
            axes.barh(
                bottom, length, height, begin, align="edge", color=shades(smact),
                edgecolor=RED if failed else "white", hatch="///" if failed else None,
                linewidth=1.5 if failed else min(0.4, 10 * inches),
            )  # fmt: skip
            number, points = str(piece.job_id), min(7.0, 0.7 * POINTS * tall / rows * height)
            if points >= LEAST_POINTS and inches > 0.65 * len(number) * points / POINTS:
                axes.text(
                    begin + length / 2, bottom + height / 2, number, ha="center",
                    va="center_baseline", fontsize=points,
                    color="black" if smact > 0.55 else "white",
                )  # fmt: skip
    every = max(1, rows // 32)
    axes.set_yticks(range(0, rows, every), names(machine)[::every])
    axes.set_ylim(rows - 0.45, -0.55)
    axes.set_xlim(0, span_s / unit_s)
    marked = "; hatched: ran out of memory" if any(r.oom for r in outcome.records) else ""
    tidy(axes, f"Jobs on GPUs (number: job{marked})", unit)
    bar = axes.figure.colorbar(ScalarMappable(cmap=shades), ax=axes, pad=0.01, aspect=30)
    bar.set_label("SM activity of the job alone", fontsize=8)
    bar.ax.tick_params(labelsize=7)


def _reserved(pieces: Iterable[Piece], usable_mib: int) -> list[tuple[float, float]]:
    """MiB reserved over time; a job that has the GPU for itself holds all of it."""
    spans = [
        (one.start_s, one.end_s, float(usable_mib if one.need_mib is None else one.need_mib))
        for one in pieces
    ]
    return [(when, min(usable_mib, mib)) for when, mib in sums(spans)]


def _points(track: History) -> list[tuple[float, float, float]]:
    """(time, SM activity, MiB in use) of one GPU."""
    return [
        (max(0.0, when), value[0], value[3])
        for when, value in zip(track.times, track.values, strict=True)
    ]


def _lines(part: "FigureBase", outcome: Outcome, machine: Machine) -> None:
    """Two columns of strips: memory and SM activity, a row for each GPU."""
    end_s = max(outcome.makespan_s, 1.0)
    unit_s, unit = clock(end_s)
    grid = part.subplots(len(machine.devices), 2, sharex=True, squeeze=False)
    for device, name, track, (left, right), slot in zip(
        machine.devices, names(machine), outcome.tracks, grid, range(len(grid)), strict=True
    ):
        mine = [piece for piece in outcome.pieces if piece.slot == slot]
        points = _points(track)
        times, values = steps(_reserved(mine, device.usable_mib), end_s)
        left.fill_between(
            [t / unit_s for t in times], [v / MIB for v in values], step="post", color=PALE,
            label="reserved",
        )  # fmt: skip
        times, values = steps(((t, mib) for t, _, mib in points), end_s)
        left.step(
            [t / unit_s for t in times], [v / MIB for v in values], where="post", color=BLUE,
            linewidth=1.1, label="in use",
        )  # fmt: skip
        left.axhline(device.usable_mib / MIB, color=GREY, linewidth=0.8, linestyle="--")
        left.set_ylim(0, device.true_mib / MIB * 1.05)
        times, values = steps(((t, smact) for t, smact, _ in points), end_s)
        right.fill_between(
            [t / unit_s for t in times], values, step="post", color=GREEN, linewidth=0
        )
        right.set_ylim(0, 1.05)
        first = slot == 0
        tidy(left, "GPU memory, GiB" if first else "", y=name)
        tidy(right, "SM activity" if first else "")
        left.set_xlim(0, end_s / unit_s)
    grid[-1][0].set_xlabel(unit)
    grid[-1][1].set_xlabel(unit)
    grid[0][0].legend(loc="upper right", ncols=2, fontsize=7, frameon=True)


def _images(part: "FigureBase", outcome: Outcome, machine: Machine) -> None:
    """Memory and SM activity as images: a row for each GPU, time to the right."""
    end_s = max(outcome.makespan_s, 1.0)
    unit_s, unit = clock(end_s)
    tracks = [_points(track) for track in outcome.tracks]
    sizes = [device.true_mib for device in machine.devices]
    pictures = (
        ("GPU memory in use (part of the GPU)", _raster(tracks, 2, sizes, end_s)),
        ("SM activity", _raster(tracks, 1, [1.0] * len(tracks), end_s)),
    )
    for axes, (title, picture) in zip(part.subplots(2, 1), pictures, strict=True):
        image = axes.imshow(
            picture, aspect="auto", cmap="cividis", vmin=0, vmax=1, interpolation="nearest",
            extent=(0, end_s / unit_s, len(tracks) - 0.5, -0.5),
        )  # fmt: skip
        tidy(axes, title, unit, "GPU")
        axes.figure.colorbar(image, ax=axes, pad=0.01, aspect=20).ax.tick_params(labelsize=7)


def _raster(
    tracks: Sequence[Sequence[tuple[float, float, float]]],
    which: int,
    sizes: Sequence[float],
    end_s: float,
) -> list[list[float]]:
    """The value in the middle of each of COLUMNS equal parts of the time."""
    out = []
    for track, size in zip(tracks, sizes, strict=True):
        times = [point[0] for point in track]
        middles = ((column + 0.5) * end_s / COLUMNS for column in range(COLUMNS))
        out.append([track[max(0, bisect_right(times, t) - 1)][which] / size for t in middles])
    return out
