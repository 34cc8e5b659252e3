# SPDX-License-Identifier: Apache-2.0
"""Measured peaks of GPU memory by model: one row for a user, model, options, GPU type and batch.

Sums over runs, not the runs: a question costs the same after a hundred and after a hundred thousand
of them. Own runs only: nobody learns from another user's.
"""

from dataclasses import asdict

from slurm_coloc.adapters.store.table import Table
from slurm_coloc.core.records.runs import ModelPeaks

MOST = 64  # batch sizes and GPU types of one model that are looked at, the newest


class Peaks(Table[ModelPeaks]):
    """The table ``peaks``; a part of the store."""

    RECORD = ModelPeaks
    NAME = "peaks"
    KEYS = ("fingerprint", "uid", "options", "gpu", "batch")

    def of_model(self, uid: int, fingerprint: str, options: str) -> list[ModelPeaks]:
        """What is known of this user's runs of a model with these options."""
        return self._rows(
            """SELECT * FROM peaks WHERE fingerprint = ? AND uid = ? AND options = ?
               ORDER BY last_s DESC LIMIT ?""",
            *(fingerprint, uid, options, MOST),
        )

    def add(self, record: ModelPeaks) -> None:
        """Add one run. ``peak_mib`` of a run measured to its end, else 0; ``at_least_mib`` and
        ``oom_mib`` likewise (see core/decide/learned.Past). ``smact``: the newest counts; None
        where it was not measured."""
        self._db.execute(
            """INSERT INTO peaks (fingerprint, uid, options, gpu, batch, runs, peak_mib, low_mib,
                 at_least_mib, oom_mib, estimator, memory_mib, context_mib, last_s, smact)
               VALUES (:fingerprint, :uid, :options, :gpu, :batch, :peak_mib > 0, :peak_mib,
                 :peak_mib, :at_least_mib, :oom_mib, :estimator, :memory_mib, :context_mib, :last_s,
                 :smact)
               ON CONFLICT DO UPDATE SET
                 runs = runs + excluded.runs,
                 peak_mib = max(peak_mib, excluded.peak_mib),
                 low_mib = CASE WHEN excluded.low_mib = 0 THEN low_mib
                   WHEN low_mib = 0 THEN excluded.low_mib ELSE min(low_mib, excluded.low_mib) END,
                 at_least_mib = max(at_least_mib, excluded.at_least_mib),
                 oom_mib = max(oom_mib, excluded.oom_mib),
                 estimator = excluded.estimator, memory_mib = excluded.memory_mib,
                 context_mib = excluded.context_mib, last_s = max(last_s, excluded.last_s),
                 smact = coalesce(excluded.smact, smact)""",
            asdict(record),
        )

    def forget(self, before_s: float) -> None:
        """Drop models of which nothing was run since ``before_s``."""
        self._write("DELETE FROM peaks WHERE last_s < ?", before_s)
