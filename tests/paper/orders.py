# SPDX-License-Identifier: Apache-2.0
"""Whether rows come in the published order: pair by pair, over the same jittered runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import sqrt
from statistics import fmean, stdev
from typing import Literal

Verdict = Literal["same", "open", "reversed"]
#: standard errors of a mean difference within which it says nothing
SURE = 2.0


@dataclass(frozen=True, slots=True)
class Ranked:
    """A row: what was published, and ours run by run."""

    id: str
    published: float
    ours: Sequence[float]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two rows, the first published lower. ``difference``: ours, second less first (mean)."""

    low: Ranked
    high: Ranked
    difference: float
    verdict: Verdict

    def text(self) -> str:
        """For the list of misses."""
        return (
            f"{self.low.id} < {self.high.id} (published {self.low.published:.3g} and "
            f"{self.high.published:.3g}; ours {fmean(self.low.ours):.1f} and "
            f"{fmean(self.high.ours):.1f})"
        )


def pairs(rows: Sequence[Ranked]) -> list[Pair]:
    """Every two rows that were published with different values."""
    found = []
    for one, other in combinations(rows, 2):
        if one.published == other.published:
            continue
        low, high = (one, other) if one.published < other.published else (other, one)
        found.append(_pair(low, high))
    return found


def _pair(low: Ranked, high: Ranked) -> Pair:
    differences = [b - a for a, b in zip(low.ours, high.ours, strict=True)]
    mean = fmean(differences)
    error = stdev(differences) / sqrt(len(differences)) if len(differences) > 1 else 0.0
    verdict: Verdict = "same" if mean > 0 else "reversed"
    if abs(mean) <= SURE * error or mean == 0:
        verdict = "open"
    return Pair(low, high, mean, verdict)


def of_row(row_id: str, found: Sequence[Pair]) -> str:
    """What is said of one row: in how many of its pairs the order is the published one."""
    mine = [pair for pair in found if row_id in (pair.low.id, pair.high.id)]
    same = sum(pair.verdict == "same" for pair in mine)
    text = f"order {same}/{len(mine)}"
    for verdict in ("reversed", "open"):
        others = [
            pair.high.id if pair.low.id == row_id else pair.low.id
            for pair in mine
            if pair.verdict == verdict
        ]
        if others:
            text += f"; {verdict}: {', '.join(others)}"
    return text


def summary(title: str, found: Sequence[Pair]) -> list[str]:
    """Counts of a table's pairs, and the reversed ones."""
    count = {
        verdict: sum(pair.verdict == verdict for pair in found)
        for verdict in ("same", "open", "reversed")
    }
    lines = [
        f"- {title}: of {len(found)} pairs that were published with different values "
        f"{count['same']} come in that order, {count['open']} are open (within {SURE:g} standard "
        f"errors), {count['reversed']} are reversed."
    ]
    lines += [f"  - reversed: {pair.text()}" for pair in found if pair.verdict == "reversed"]
    return lines
