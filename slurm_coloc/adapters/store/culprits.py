# SPDX-License-Identifier: Apache-2.0
"""The table of runs that ended a neighbour; a part of the store."""

from slurm_coloc.adapters.store.table import Table
from slurm_coloc.core.records.culprits import NamedCulprit
from slurm_coloc.core.records.runs import OfRun


class Culprits(Table[NamedCulprit]):
    """The table ``culprits``: a row for each run that was ended, with the run that ended it."""

    RECORD = NamedCulprit
    NAME = "culprits"
    KEYS = ("victim_decision", "victim_job", "victim_restart")

    def add_once(self, record: NamedCulprit) -> bool:
        """Add one; False where a culprit of that victim is known already."""
        known = self.of(record.victim_decision, record.victim_job, record.victim_restart)
        if known is None:
            self.add(record)
        return known is None

    def victims_of(self, run: OfRun) -> int:
        """How many runs this one ended."""
        return self._count("decision = ? AND job_id = ? AND restart = ?", *run.key)

    def newest(self, uid: int, fingerprint: str) -> NamedCulprit | None:
        """The last time that a run of this user's model ended another one."""
        where = "uid = ? AND fingerprint = ? ORDER BY at_s DESC LIMIT 1"
        return next(iter(self._where(where, uid, fingerprint)), None)
