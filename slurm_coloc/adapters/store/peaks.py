# SPDX-License-Identifier: Apache-2.0
"""Measured peaks of GPU memory by model: one row for a user, model, options, GPU type and batch.

Sums over runs, not the runs: a question costs the same after a hundred and after a hundred thousand
of them. Own runs only: nobody learns from another user's. And which runs were beside another one.
"""

import sqlite3
from typing import Any

Row = dict[str, Any]

COLUMNS = "batch, gpu, runs, peak_mib, low_mib, at_least_mib, oom_mib, estimator, memory_mib,"
COLUMNS += " context_mib, smact"
MOST = 64  # batch sizes and GPU types of one model that are looked at, the newest


class Peaks:
    """The table ``peaks``; a part of the store."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def of(self, uid: int, fingerprint: str, options: str) -> list[Row]:
        """What is known of this user's runs of a model with these options."""
        found = self._connection.execute(
            f"""SELECT {COLUMNS} FROM peaks WHERE fingerprint = ? AND uid = ? AND options = ?
                ORDER BY last_s DESC LIMIT ?""",
            (fingerprint, uid, options, MOST),
        )
        return _dicts(found)

    def add(self, row: Row) -> None:
        """Add one run. ``peak_mib`` of a run measured to its end, else 0; ``at_least_mib`` and
        ``oom_mib`` likewise (see core/decide/learned.Past). ``smact``: SM activity of a run alone
        on its GPU, the newest counts; None where it was not measured."""
        self._connection.execute(
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
            row,
        )

    def forget(self, before_s: float) -> None:
        """Drop models of which nothing was run since ``before_s``."""
        self._connection.execute("DELETE FROM peaks WHERE last_s < ?", (before_s,))

    def beside(self, run: Row, start_s: float, end_s: float) -> list[Row]:
        """The other runs that ran at some time from ``start_s`` to ``end_s``, with node, GPUs and
        what they used. One that ended in the second in which this one began, by Slurm's clock, was
        before it."""
        found = self._connection.execute(
            """SELECT decision, job_id, restart, uid, node, gpu_uuids, start_s, end_s, used
               FROM runs WHERE (end_s > ? OR open = 1)
               AND start_s IS NOT NULL AND start_s < ? AND outcome IS NOT 'put-back'
               AND NOT (decision = ? AND job_id = ? AND restart = ?)""",
            (start_s, end_s, run["decision"], run["job_id"], run["restart"]),
        )
        return _dicts(found)


def _dicts(found: sqlite3.Cursor) -> list[Row]:
    names = [column[0] for column in found.description]
    return [dict(zip(names, row, strict=True)) for row in found]
