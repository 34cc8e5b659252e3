# SPDX-License-Identifier: Apache-2.0
"""The table of measured pairs; a part of the store."""

from slurm_coloc.adapters.store.table import Table
from slurm_coloc.core.records.pairs import PairSpeed

#: runs after which the older ones count less and less
MOST_RUNS = 20.0
#: rows that are read at a time
NEWEST = 20_000


class Pairs(Table[PairSpeed]):
    """The table ``pairs``: a row for each training beside another one, on one kind of card."""

    RECORD = PairSpeed
    NAME = "pairs"
    KEYS = ("uid", "training", "beside", "card", "method")

    def learn(self, one: PairSpeed) -> None:
        """Add what one run showed to what is known."""
        known = self.of(*(getattr(one, name) for name in self.KEYS))
        if known is None:
            self.add(one)
            return
        runs = min(MOST_RUNS, known.runs + 1.0)
        log_speed = known.log_speed + (one.log_speed - known.log_speed) / runs
        self.change(known, runs=runs, log_speed=log_speed, at_s=one.at_s)

    def newest(self) -> list[PairSpeed]:
        """All that is known, the newest first, NEWEST at most."""
        return self._where("true ORDER BY at_s DESC LIMIT ?", NEWEST)

    def forget(self, before_s: float) -> None:
        """Drop what was not seen again since ``before_s``."""
        self._write("DELETE FROM pairs WHERE at_s < ?", before_s)
