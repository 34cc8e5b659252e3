# SPDX-License-Identifier: Apache-2.0
"""The table of measured pairs; a part of the store."""

from slurm_coloc.adapters.store.table import Table
from slurm_coloc.core.records.pairs import PairSpeed

#: runs after which the older ones count less and less
MOST_RUNS = 20.0
#: rows of one user: nobody's many trainings keep others' from being read
MOST_OF_USER = 200
#: rows that are read at a time: 12 ms of colocd, for which submissions wait
NEWEST = 2_000


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
            self._write(
                """DELETE FROM pairs WHERE uid = ? AND at_s < (
                     SELECT at_s FROM pairs WHERE uid = ? ORDER BY at_s DESC LIMIT 1 OFFSET ?)""",
                *(one.uid, one.uid, MOST_OF_USER - 1),
            )
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
