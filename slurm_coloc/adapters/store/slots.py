# SPDX-License-Identifier: Apache-2.0
"""Jobs that run in time slots, and how much of their time they have used."""

from slurm_coloc.adapters.store.table import Table, records
from slurm_coloc.core.records.lists import SlottedJob
from slurm_coloc.core.records.runs import Run


class Slots(Table[SlottedJob]):
    """The table ``slots``; a part of the store."""

    RECORD = SlottedJob
    NAME = "slots"
    KEYS = ("decision", "job_id")

    def live(self) -> list[SlottedJob]:
        """Those that are looked after, oldest first."""
        sql = "SELECT * FROM slots WHERE state IN ('open', 'dropped') ORDER BY created_s"
        return self._rows(sql)

    def unknown(self) -> list[Run]:
        """Open runs of decisions with a slot whose job is not in the table yet."""
        return records(
            Run,
            self._db,
            """SELECT r.* FROM runs r JOIN decisions d ON d.id = r.decision
               WHERE r.open = 1 AND d.slot IS NOT NULL AND d.mode = 'on' AND NOT EXISTS
                 (SELECT 1 FROM slots s WHERE s.decision = r.decision AND s.job_id = r.job_id)""",
        )
