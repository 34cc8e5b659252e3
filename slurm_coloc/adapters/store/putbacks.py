# SPDX-License-Identifier: Apache-2.0
"""Runs that were put back before they began, because their GPUs were not fit for them.

``state`` is ``open`` until the job is where it belongs; ``was`` what its owner had excluded, NULL
where no other node can take it; ``base`` the priority that the job is to have again, 0 where it
has; ``excluded`` and ``delayed`` what has been done.
"""

from slurm_coloc.adapters.store.table import Row, Table


class Putbacks(Table):
    """The table ``putbacks``; a part of the store."""

    NAME = "putbacks"
    KEYS = ("decision", "job_id", "restart")

    def open(self) -> list[Row]:
        """Those under way, oldest first."""
        return self._rows("SELECT * FROM putbacks WHERE state = 'open' ORDER BY created_s")

    def open_of(self, decision: str, job_id: int) -> list[Row]:
        """Those of one job that are under way."""
        sql = "SELECT * FROM putbacks WHERE state = 'open' AND decision = ? AND job_id = ?"
        return self._rows(sql, decision, job_id)

    def count(self, decision: str, job_id: int) -> int:
        """How often a job was put back."""
        sql = "SELECT count(*) AS n FROM putbacks WHERE decision = ? AND job_id = ?"
        return int(self._rows(sql, decision, job_id)[0]["n"])

    def since(self, since_s: float) -> list[Row]:
        """Nodes with what was wrong there after ``since_s``, the newest first."""
        return self._rows(
            """SELECT node, count(*) AS runs, max(created_s) AS last_s, why FROM putbacks
               WHERE created_s > ? GROUP BY node
               ORDER BY last_s DESC LIMIT 50""",
            since_s,
        )
