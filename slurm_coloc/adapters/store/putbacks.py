# SPDX-License-Identifier: Apache-2.0
"""Runs that were put back before they began, because their GPUs were not fit for them. A row is
open until its job is where it belongs."""

from slurm_coloc.adapters.store.table import Table, records
from slurm_coloc.core.records.lists import PutBack
from slurm_coloc.core.records.queries import UnfitNode


class Putbacks(Table[PutBack]):
    """The table ``putbacks``; a part of the store."""

    RECORD = PutBack
    NAME = "putbacks"
    KEYS = ("decision", "job_id", "restart")

    def open(self) -> list[PutBack]:
        """Those under way, oldest first."""
        return self._rows("SELECT * FROM putbacks WHERE state = 'open' ORDER BY created_s")

    def open_of(self, decision: str, job_id: int) -> list[PutBack]:
        """Those of one job that are under way."""
        sql = "SELECT * FROM putbacks WHERE state = 'open' AND decision = ? AND job_id = ?"
        return self._rows(sql, decision, job_id)

    def count(self, decision: str, job_id: int) -> int:
        """How often a job was put back."""
        sql = "SELECT count(*) FROM putbacks WHERE decision = ? AND job_id = ?"
        return int(self._values(sql, decision, job_id)[0])

    def since(self, since_s: float) -> list[UnfitNode]:
        """Nodes with what was wrong there after ``since_s``, the newest first."""
        return records(
            UnfitNode,
            self._db,
            """SELECT node, count(*) AS runs, max(created_s) AS last_s, why FROM putbacks
               WHERE created_s > ? GROUP BY node ORDER BY last_s DESC LIMIT 50""",
            since_s,
        )
