# SPDX-License-Identifier: Apache-2.0
"""Seconds that a run still takes, from when which part of it was done.

A pace is taken between two places of the same kind, whole epochs apart where they are known, so
that validation and saving count with it; the newest part counts, since a neighbour on the GPU may
have come or gone.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import ceil
from statistics import fmean, median, pstdev
from typing import NamedTuple

CYCLES = 4  # whole epochs that a pace is taken over, at most
BLOCKS = 6  # parts of that stretch, whose paces are compared
NEWEST = 8  # marks whose distances tell how often the log says something
LEAST = 0.02  # of the time left, either way
NO_CYCLE = 0.12  # more, while no epoch was seen whole
SOON = 0.10  # more, at the begin; falls to nothing by a tenth of the run
MOST = 0.9
EIGHT_OF_TEN = 1.28  # standard deviations
TINY = 1e-9


class Mark(NamedTuple):
    """At ``at_s`` the log first said that ``done`` of the run was done."""

    at_s: float
    done: float


def time_left(
    marks: Sequence[Mark], cycle: float | None, now_s: float
) -> tuple[float, float] | None:
    """Seconds, and the part of them by which they may be wrong in two of ten cases. ``cycle``: the
    part of the run that an epoch is."""
    if len(marks) < 2:
        return None
    first, last = marks[0], marks[-1]
    cycle = cycle if cycle and cycle < 1 else None
    whole = int((last.done - first.done) / cycle + TINY) if cycle else 0
    if cycle and whole:
        since = _at(marks, last.done - min(whole, CYCLES) * cycle)
    else:
        since = first if cycle else _at(marks, (first.done + last.done) / 2)
    if last.at_s <= since.at_s or last.done <= since.done:
        return None
    pace = (last.at_s - since.at_s) / (last.done - since.done)  # seconds of the whole
    behind_s = _behind(marks, cycle, pace) if cycle and whole else 0.0
    into = last.done / cycle - (ceil(last.done / cycle - TINY) - 1) if cycle else 0.0
    left_s = (1 - last.done) * pace + into * behind_s
    # What was not said yet: at most as much as comes between two of the log's words.
    step = max(new.done - old.done for old, new in pairwise(marks[-NEWEST:]))
    silent_s = min(now_s - last.at_s, max(step * pace, behind_s))
    part = LEAST + _spread(marks, since)
    part += 0.0 if whole or not cycle else NO_CYCLE
    part += SOON * max(0.0, 1 - (last.done - first.done) / 0.1)
    return max(0.0, left_s - silent_s), min(MOST, part)


def _behind(marks: Sequence[Mark], cycle: float, pace: float) -> float:
    """Seconds of an epoch in which its counter stands still: validation, saving."""
    inside = [
        (new.at_s - old.at_s) / (new.done - old.done)
        for old, new in pairwise(marks)
        if ceil(old.done / cycle - TINY) == ceil(new.done / cycle - TINY)
    ]
    return max(0.0, pace - median(inside)) * cycle if len(inside) >= 3 else 0.0


def _spread(marks: Sequence[Mark], since: Mark) -> float:
    """By how much the pace may be wrong, from how it varied."""
    stretch = [since, *(one for one in marks if one.done > since.done)]
    size = max(1, (len(stretch) - 1) // BLOCKS)
    ends = stretch[::-1][::size][::-1]
    paces = [
        (new.at_s - old.at_s) / (new.done - old.done)
        for old, new in pairwise(ends)
        if new.done > old.done
    ]
    if len(paces) < 2:
        return 0.1
    return float(EIGHT_OF_TEN * pstdev(paces) / fmean(paces) / len(paces) ** 0.5)


def _at(marks: Sequence[Mark], done: float) -> Mark:
    """When ``done`` was reached, between two marks."""
    for old, new in pairwise(marks):
        if old.done <= done <= new.done:
            part = (done - old.done) / (new.done - old.done)
            return Mark(old.at_s + part * (new.at_s - old.at_s), done)
    return marks[0]
