# SPDX-License-Identifier: Apache-2.0
"""The series of a scrape: metrics with the values that they have now."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from slurm_coloc.core.metrics.catalog import Metric


class Histogram:
    """How many values were at most each of ``bounds``, how many in all, and their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """Nothing was seen yet."""
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)  # by bucket, not added up; the last has no end
        self.total = 0.0

    def see(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        """The upper end of each bucket as text, and the values up to it."""
        found, so_far = [], 0
        for end, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            so_far += count
            found.append((end, float(so_far)))
        return found

    def plain(self) -> dict[str, list[int] | float]:
        """As JSON."""
        return {"counts": list(self.counts), "total": self.total}

    @classmethod
    def of(cls, metric: Metric, plain: dict[str, list[int] | float]) -> "Histogram":
        """From ``plain``; raises KeyError, TypeError or ValueError where it is of other bounds."""
        made = cls(metric.bounds)
        counts, total = plain["counts"], plain["total"]
        if not isinstance(counts, list) or len(counts) != len(made.counts):
            raise ValueError("counts")
        made.counts, made.total = counts, float(total)  # type: ignore[arg-type]
        return made


Value = float | Histogram
Row = tuple[tuple[str, ...], Value]


class Series:
    """One metric with its values; ``rows``: the labels' values in the metric's order, and each
    value."""

    def __init__(self, metric: Metric, rows: Iterable[Row] = ()) -> None:
        self.metric = metric
        self.rows = list(rows)

    def add(self, labels: tuple[str, ...], value: Value | None) -> None:
        """Add a value; None is left out: what is not known has no series."""
        if value is not None:
            self.rows.append((labels, value))


def single(metric: Metric, value: Value | None) -> Series:
    """A metric without labels."""
    series = Series(metric)
    series.add((), value)
    return series
