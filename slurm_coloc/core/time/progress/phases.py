# SPDX-License-Identifier: Apache-2.0
"""How fast a run is beside another training against alone, by its own log.

Both paces are of one run, so that nothing else has to be the same: not the data, not the number of
epochs, not the card. A run that was never alone, or never beside one other, says nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from slurm_coloc.core.time.progress.pace import Mark

#: nobody is beside the run
ALONE = ""
#: places that a log must have told of a stretch
MARKS = 5
#: what is believed of a speed (ratio): a log may claim anything
LEAST, MOST = 0.05, 1.0


@dataclass(slots=True)
class _Stretch:
    """A stretch with the same neighbours: the first and last mark in it, and how many."""

    first: Mark
    last: Mark
    marks: int = 1


@dataclass(slots=True)
class Phases:
    """One run's. ``settle_s``: seconds after a change of neighbours that are left out, since who
    begins does not compute yet; ``least_s``: the least length of a stretch that counts."""

    settle_s: float
    least_s: float
    _beside: str | None = None
    _since_s: float = 0.0
    _stretch: _Stretch | None = None
    _sums: dict[str, tuple[float, float]] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)

    def see(self, at_s: float, beside: str | None, said: Mark | None) -> bool:
        """Take a look at the run. ``beside``: the training of its one neighbour, ALONE, or None:
        several, or not known. ``said``: the last place that the log told. Whether the neighbours
        are others than before."""
        changed = beside != self._beside
        if changed:
            self._close()
            self._beside, self._since_s = beside, at_s
        if beside is None or said is None or said.at_s < self._since_s + self.settle_s:
            return changed
        now = self._stretch
        if now is None:
            self._stretch = _Stretch(said, said)
        elif said.done < now.last.done:  # another training in the same log
            self._sums.clear()
            self._stretch = _Stretch(said, said)
        elif said.done > now.last.done:
            now.last, now.marks = said, now.marks + 1
        return changed

    def new_speeds(self) -> Mapping[str, float]:
        """Speeds (1 = alone) beside each training, of stretches that have ended, each once."""
        alone = self._pace(ALONE)
        if alone is None:
            return {}
        found = {}
        for beside in self._sums.keys() - self._told - {ALONE}:
            pace = self._pace(beside)
            if pace is not None:
                found[beside] = min(MOST, max(LEAST, pace / alone))
        self._told |= found.keys()
        return found

    def end(self) -> Mapping[str, float]:
        """The speeds that are new when the run is over."""
        self._close()
        return self.new_speeds()

    def _pace(self, beside: str) -> float | None:
        """Parts of the run in a second."""
        done, seconds = self._sums.get(beside, (0.0, 0.0))
        return done / seconds if done > 0.0 and seconds > 0.0 else None

    def _close(self) -> None:
        stretch, self._stretch = self._stretch, None
        if stretch is None or self._beside is None or stretch.marks < MARKS:
            return
        seconds = stretch.last.at_s - stretch.first.at_s
        if seconds >= self.least_s:
            done, before_s = self._sums.get(self._beside, (0.0, 0.0))
            done += stretch.last.done - stretch.first.done
            self._sums[self._beside] = done, before_s + seconds
