# SPDX-License-Identifier: Apache-2.0
"""The time that a training still takes, from what its log said whenever it was read."""

from typing import NamedTuple

from slurm_coloc.core.time.progress.pace import Mark, time_left
from slurm_coloc.core.time.progress.place import Place, Places
from slurm_coloc.core.time.progress.reading import Said

MARKS = 96  # kept of a run
OWN = 0.15  # of the log's own figure, either way
LONGEST_S = 5e7  # a year and a half: what claims to take longer is no training


class Forecast(NamedTuple):
    """``done``: 0 to 1; ``left_s`` with a range that is meant to hold in eight of ten cases;
    ``epoch``: done, with a fraction, of ``epochs``; None: not known. ``said_s``: when the log first
    said so."""

    done: float | None
    left_s: float | None
    low_s: float | None
    high_s: float | None
    epoch: float | None
    epochs: float | None
    said_s: float | None = None


class Progress:
    """One run's."""

    def __init__(self) -> None:
        self._places = Places()
        self._marks: list[Mark] = []
        self._place = Place()
        self._own: tuple[float, float] | None = None  # when, and the log's own time left

    def see(self, at_s: float, said: Said) -> None:
        """Take a reading of the log."""
        self._place = self._places.place(said)
        self._own = None if said.left_s is None else (at_s, said.left_s)
        done, marks = self._place.done, self._marks
        if done is None:
            return
        if marks and done < marks[-1].done:
            marks.clear()  # another training in the same log
        if not marks or done > marks[-1].done:
            marks.append(Mark(at_s, done))
            if len(marks) > MARKS:
                del marks[1 : MARKS // 2 : 2]  # the older half gets coarser

    def forecast(self, now_s: float) -> Forecast | None:
        """None where the log says nothing of how far the run is."""
        place = self._place
        found = time_left(self._marks, place.cycle, now_s) if place.done is not None else None
        if found is None and place.done is not None and place.done >= 1:
            found = 0.0, 0.0
        if found is None and self._own is not None:
            found = max(0.0, self._own[1] - (now_s - self._own[0])), OWN
        if found is None or found[0] > LONGEST_S:
            if place.done is None and place.epoch is None:
                return None
            return Forecast(
                place.done, None, None, None, place.epoch, place.epochs, self._marked_s()
            )
        left_s, part = found
        low_s, high_s = left_s * (1 - part), left_s * (1 + part)
        return Forecast(
            place.done, left_s, low_s, high_s, place.epoch, place.epochs, self._marked_s()
        )

    def _marked_s(self) -> float | None:
        return self._marks[-1].at_s if self._marks else None
