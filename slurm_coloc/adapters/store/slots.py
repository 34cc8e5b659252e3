# SPDX-License-Identifier: Apache-2.0
"""Jobs that run in time slots, and how much of their time they have used.

``state`` is ``open`` while the job may have another slot, ``dropped`` when it has none any more but
its time is still bounded, else how it ended. The other columns are core/time/slot.State's; ``nice``
is what the job's owner had before it was put behind others.
"""

from slurm_coloc.adapters.store.table import Row, Table

_LIVE = "state IN ('open', 'dropped')"


class Slots(Table):
    """The table ``slots``; a part of the store."""

    NAME = "slots"
    KEYS = ("decision", "job_id")

    def live(self) -> list[Row]:
        """Those that are looked after, oldest first."""
        return self._rows(f"SELECT * FROM slots WHERE {_LIVE} ORDER BY created_s")

    def unknown(self) -> list[Row]:
        """Open runs of decisions with a slot whose job is not in the table yet."""
        return self._rows(
            """SELECT r.decision, r.job_id, r.restart, r.uid, d.slot FROM runs r
               JOIN decisions d ON d.id = r.decision
               WHERE r.open = 1 AND d.slot IS NOT NULL AND d.mode = 'on' AND NOT EXISTS
                 (SELECT 1 FROM slots s WHERE s.decision = r.decision AND s.job_id = r.job_id)"""
        )
