# SPDX-License-Identifier: Apache-2.0
"""The time that a training still takes, from what its log said at several looks.

A pace is taken between two places of the same kind, whole epochs apart where they are known, so
that validation and saving count with it; the newest part counts, since a neighbour on the GPU may
have come or gone. The range is meant to hold in eight of ten cases.
"""

from itertools import pairwise
from statistics import fmean, pstdev
from typing import NamedTuple

from slurm_coloc.core.time.progress.reading import Said

MARKS = 96  # places kept
CYCLES = 4  # whole epochs that a pace is taken over, at most
BLOCKS = 6  # parts of that stretch, whose paces are compared
LEAST = 0.02  # of the time left, either way
NO_CYCLE = 0.12  # more, while no epoch was seen whole
SOON = 0.10  # more, at the begin; falls to nothing by a tenth of the run
EIGHT_OF_TEN = 1.28  # standard deviations


class Forecast(NamedTuple):
    """``done``: 0 to 1; ``left_s`` with its range; ``epoch``: done, with a fraction, of ``epochs``;
    None: not known."""

    done: float | None
    left_s: float | None
    low_s: float | None
    high_s: float | None
    epoch: float | None
    epochs: float | None


class Mark(NamedTuple):
    """At ``at_s`` the log first said that ``done`` of the run was done."""

    at_s: float
    done: float


class Progress:
    """One run's places so far."""

    def __init__(self) -> None:
        self._marks: list[Mark] = []
        self._again = 0  # times that a counter without labels began again
        self._step: float | None = None
        self._steps: float | None = None
        self._longest_s = 0.0  # of the counter that is followed
        self._said = Said()
        self._looked_s = 0.0

    def see(self, at_s: float, said: Said) -> None:
        """Take a look at the log."""
        said = self._followed(said)
        self._count_again(said)
        self._said, self._looked_s = said, at_s
        done = self._done(said)
        if done is None:
            return
        if self._marks and done < self._marks[-1].done - 1e-9:
            self._marks.clear()  # another training in the same log
        if not self._marks or done > self._marks[-1].done:
            self._marks.append(Mark(at_s, done))
            if len(self._marks) > MARKS:
                del self._marks[1 : MARKS // 2 : 2]  # the older half gets coarser

    def forecast(self, now_s: float) -> Forecast | None:
        """None where the log says nothing of how far the run is."""
        said, done = self._said, self._done(self._said)
        epoch, epochs = self._epochs(said)
        if done is None and epoch is None and said.left_s is None:
            return None
        if done is not None and done >= 1.0:
            return Forecast(1.0, 0.0, 0.0, 0.0, epoch, epochs)
        found = self._left(now_s, epochs)
        if found is None and said.left_s is not None:
            left_s = max(0.0, said.left_s - (now_s - self._looked_s))
            found = left_s, 0.15
        if found is None:
            return Forecast(done, None, None, None, epoch, epochs)
        left_s, part = found
        low_s, high_s = left_s * max(0.0, 1 - part), left_s * (1 + part)
        return Forecast(done, left_s, low_s, high_s, epoch, epochs)

    # the place

    def _followed(self, said: Said) -> Said:
        """Without the counter, where it is a shorter one than the training's: a validation's."""
        if said.elapsed_s is None or said.steps is None or self._steps is None:
            self._longest_s = max(self._longest_s, said.elapsed_s or 0.0)
            return said
        if said.steps != self._steps and said.elapsed_s < self._longest_s:
            return said._replace(step=self._step, steps=self._steps)
        self._longest_s = max(self._longest_s, said.elapsed_s)
        return said

    def _count_again(self, said: Said) -> None:
        if said.epoch is None and said.exact is None and said.step is not None:
            same = said.steps is not None and said.steps == self._steps
            if same and self._step is not None and said.step < self._step:
                self._again += 1
        self._step, self._steps = said.step, said.steps

    def _epochs(self, said: Said) -> tuple[float | None, float | None]:
        """Epochs done, with a fraction, and how many there are."""
        part = 0.0
        if said.step is not None and said.steps:
            part = min(1.0, said.step / said.steps)
        if said.exact is not None:
            if said.step and said.steps and said.exact:
                return said.exact, said.steps / said.step * said.exact
            return said.exact, said.set_epochs
        if said.epoch is not None:
            base = 0.0 if said.first == 0 else 1.0
            done = max(0.0, said.epoch - base) + (1.0 if said.ended else 0.0) + part
            return done, _total(said)
        if self._again:
            return self._again + part, said.set_epochs
        return None, said.set_epochs

    def _done(self, said: Said) -> float | None:
        if said.exact is not None and said.step is not None and said.steps:
            return said.step / said.steps
        epoch, epochs = self._epochs(said)
        if epoch is not None:
            return min(1.0, epoch / epochs) if epochs else None
        if said.step is None:
            return None
        if said.steps:
            # Without any word of an epoch the counter is of the whole run, unless the run was told
            # how many epochs to take: then it may be of one of them.
            several = (said.set_epochs or 1) > 1 and not said.trainer
            return None if several else said.step / said.steps
        return min(1.0, said.step / said.set_steps) if said.set_steps else None

    # the pace

    def _left(self, now_s: float, epochs: float | None) -> tuple[float, float] | None:
        """Seconds, and the part of them by which they may be wrong."""
        marks = self._marks
        if len(marks) < 2:
            return None
        first, last = marks[0], marks[-1]
        cycle = 1 / epochs if epochs and epochs > 1 else None
        whole = int((last.done - first.done) / cycle + 1e-9) if cycle else 0
        if cycle and whole:
            since = _at(marks, last.done - min(whole, CYCLES) * cycle)
        else:
            since = _at(marks, (first.done + last.done) / 2) if not cycle else first
        took_s = last.at_s - since.at_s
        if took_s <= 0 or last.done <= since.done:
            return None
        pace = took_s / (last.done - since.done)  # seconds of the whole
        left_s = (1 - last.done) * pace
        # What was not said yet: at most as much as comes between two of the log's words.
        step = max(new.done - old.done for old, new in pairwise(marks[-8:]))
        left_s = max(left_s - (now_s - last.at_s), left_s - step * pace, 0.0)
        part = LEAST + self._spread(since)
        part += 0.0 if whole or not cycle else NO_CYCLE
        part += SOON * max(0.0, 1 - (last.done - first.done) / 0.1)
        return left_s, min(0.9, part)

    def _spread(self, since: Mark) -> float:
        """By how much the pace may be wrong, from how it varied."""
        stretch = [since, *(one for one in self._marks if one.done > since.done)]
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


def _total(said: Said) -> float | None:
    """Of how many epochs the labels are."""
    if said.epochs is None:
        return said.set_epochs
    if said.first == 0:
        if said.set_epochs in (said.epochs, said.epochs + 1):
            return said.set_epochs
        return said.epochs + 1 if said.last else said.epochs
    return said.epochs


def _at(marks: list[Mark], done: float) -> Mark:
    """When ``done`` was reached, between two marks."""
    for old, new in pairwise(marks):
        if old.done <= done <= new.done:
            part = (done - old.done) / (new.done - old.done)
            return Mark(old.at_s + part * (new.at_s - old.at_s), done)
    return marks[0]
