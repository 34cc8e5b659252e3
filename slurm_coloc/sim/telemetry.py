# SPDX-License-Identifier: Apache-2.0
"""What a monitor would have shown of one GPU: a window that ends some time ago."""

from bisect import bisect_right
from dataclasses import dataclass, field

from slurm_coloc.core.place.gpu_slot import Measured


@dataclass(frozen=True, slots=True)
class Monitor:
    """How telemetry measures. ``window_s``: seconds that a figure is the mean of. ``refresh_s``:
    seconds between two polls; a decision between them sees the older one. ``reserve_mib``: MiB that
    the monitor takes off what is free. ``statistic``: mean, or risk, CARMA's blend of mean, median,
    95th percentile and a moving average.
    """

    window_s: float = 90.0
    refresh_s: float = 90.0
    reserve_mib: int = 0
    statistic: str = "mean"


@dataclass(slots=True)
class History:
    """The last minutes of one device: pieces in which nothing changed."""

    true_mib: int
    times: list[float] = field(default_factory=lambda: [float("-inf")])
    #: (SM activity, SM occupancy, DRAM activity, MiB in use) from each time on
    values: list[tuple[float, float, float, int]] = field(
        default_factory=lambda: [(0.0, 0.0, 0.0, 0)]
    )

    def note(self, now_s: float, value: tuple[float, float, float, int], keep_s: float) -> None:
        """From now on it is so; what is older than ``keep_s`` may be forgotten."""
        if self.times[-1] == now_s:
            self.values[-1] = value
            return
        self.times.append(now_s)
        self.values.append(value)
        if len(self.times) > 64:
            first = max(0, bisect_right(self.times, now_s - keep_s) - 1)
            del self.times[:first], self.values[:first]

    def at(self, when_s: float, monitor: Monitor) -> Measured:
        """What the monitor showed at a time."""
        last = bisect_right(self.times, when_s) - 1
        free_mib = self.true_mib - self.values[last][3] - monitor.reserve_mib
        begin = when_s - monitor.window_s
        if self.times[last] <= begin:  # the usual case: nothing changed in the window
            return Measured(free_mib, *self.values[last][:3])
        pieces: list[tuple[float, tuple[float, float, float, int]]] = []
        end, i = when_s, last
        while i >= 0 and end > begin:
            start = max(begin, self.times[i])
            pieces.append((end - start, self.values[i]))
            end, i = start, i - 1
        smact, smocc, drama = (_statistic(pieces, kind, monitor) for kind in range(3))
        return Measured(free_mib, smact, smocc, drama)


def _statistic(
    pieces: list[tuple[float, tuple[float, float, float, int]]], kind: int, monitor: Monitor
) -> float:
    """One figure of a window, from its pieces, newest first."""
    newest = pieces[0][1][kind] if pieces else 0.0
    seconds = sum(part for part, _ in pieces)
    if seconds <= 0 or all(value[kind] == newest for _, value in pieces):
        return newest
    mean = sum(part * value[kind] for part, value in pieces) / seconds
    if monitor.statistic == "mean":
        return mean
    count = 30  # CARMA's window holds 30 samples
    samples = _samples(pieces, kind, seconds, count)
    alpha, moving = 2 / (count + 1), samples[0]
    for value in samples:
        moving += alpha * (value - moving)
    ranked = sorted(samples)
    median, high = ranked[count // 2], ranked[round(0.95 * (count - 1))]
    # 0.2 mean + 0.2 median + 0.1 median again + 0.3 p95 + 0.2 moving average (facts of its code)
    return 0.2 * mean + 0.3 * median + 0.3 * high + 0.2 * moving


def _samples(
    pieces: list[tuple[float, tuple[float, float, float, int]]],
    kind: int,
    seconds: float,
    count: int,
) -> list[float]:
    """The window as equally spaced samples, oldest first."""
    out: list[float] = []
    done = 0.0
    for part, value in reversed(pieces):
        done += part
        while len(out) < count and (len(out) + 0.5) * seconds / count <= done:
            out.append(value[kind])
    return out + [pieces[0][1][kind]] * (count - len(out))
