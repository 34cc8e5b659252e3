# SPDX-License-Identifier: Apache-2.0
"""What people ask of the history: `coloc jobs`, `history`, `report`, `status`. It only reads."""

import json
from typing import Any

from sqlite_utils import Database

Row = dict[str, Any]


class Queries:
    """Questions over several tables; a part of the store."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def _rows(self, sql: str, *values: object) -> list[Row]:
        return list(self._db.query(sql, values))

    def recent_runs(self, uid: int | None, limit: int, *, only_open: bool = False) -> list[Row]:
        """Newest runs with their decisions, and the recovery that a run came by; of one user where
        ``uid`` is given."""
        return self._rows(
            f"""SELECT runs.*, decisions.account, decisions.partition, decisions.action,
                       decisions.reason, decisions.shards, decisions.shard_mib,
                       decisions.shards_per_gpu, decisions.memory_mib, decisions.upper_mib,
                       decisions.estimator, decisions.made_s, decisions.smact,
                       work.way AS retry_way, work.cause AS retry_cause
                FROM runs JOIN decisions ON decisions.id = runs.decision
                LEFT JOIN work ON work.decision = runs.decision AND work.job_id = runs.job_id
                  AND work.restart = runs.restart - 1
                WHERE (? IS NULL OR runs.uid = ?) {"AND runs.open = 1" if only_open else ""}
                ORDER BY runs.rowid DESC LIMIT ?""",
            uid,
            uid,
            limit,
        )

    def alone_s(self, run: Row, decision: Row) -> list[float]:
        """Run times (s) of this user's completed runs of the same model with the same options that
        had their GPU for themselves, the newest 20."""
        rows = self._rows(
            """SELECT runs.end_s - runs.start_s AS lasted_s, runs.used AS used
               FROM runs JOIN decisions ON decisions.id = runs.decision
               WHERE runs.uid = ? AND decisions.fingerprint = ? AND decisions.options = ?
                 AND runs.outcome = 'completed' AND runs.start_s IS NOT NULL
                 AND runs.used IS NOT NULL AND NOT (runs.job_id = ? AND runs.restart = ?)
               ORDER BY runs.rowid DESC LIMIT 100""",
            run["uid"],
            decision.get("fingerprint"),
            decision.get("options"),
            run["job_id"],
            run["restart"],
        )
        alone = [
            row["lasted_s"]
            for row in rows
            if not any(one.get("neighbours") for one in json.loads(row["used"]))
        ]
        return alone[:20]

    def used_by_user(self, uid: int | None, since_s: float) -> list[Row]:
        """Runs that ended after ``since_s`` by user: how many, how they ended, GPU hours, and sums
        (MiB) over those whose estimate, reservation and peak are known."""
        return self._rows(
            """SELECT runs.uid AS uid, count(*) AS runs,
                 sum(runs.share_mib > 0) AS shared, sum(runs.outcome = 'completed') AS completed,
                 sum(runs.outcome = 'oom-gpu') AS oom, sum(runs.outcome = 'put-back') AS put_back,
                 sum(runs.end_s - coalesce(runs.start_s, runs.end_s)) / 3600.0 AS hours,
                 count(iif(known, 1, NULL)) AS measured,
                 coalesce(sum(iif(known, runs.peak_mib, 0)), 0) AS peak_mib,
                 coalesce(sum(iif(known, decisions.memory_mib, 0)), 0) AS estimate_mib,
                 coalesce(sum(iif(known, runs.share_mib, 0)), 0) AS reserved_mib
               FROM (SELECT *, share_mib > 0 AND peak_mib IS NOT NULL AS known FROM runs) AS runs
               JOIN decisions ON decisions.id = runs.decision
               WHERE runs.open = 0 AND runs.end_s > ? AND (? IS NULL OR runs.uid = ?)
               GROUP BY runs.uid ORDER BY hours DESC""",
            since_s,
            uid,
            uid,
        )

    def observed(self, uid: int | None, limit: int) -> list[Row]:
        """Newest decisions made in observe mode; of one user where ``uid`` is given."""
        return self._rows(
            """SELECT id, made_s, uid, account, partition, action, reason, detail, shards,
                      shard_mib, shards_per_gpu, estimator, memory_mib, upper_mib
               FROM decisions WHERE mode = 'observe' AND (? IS NULL OR uid = ?)
               ORDER BY rowid DESC LIMIT ?""",
            uid,
            uid,
            limit,
        )

    def counts(self) -> Row:
        """Rows by kind, for `status`."""
        rows = self._rows(
            """SELECT (SELECT count(*) FROM decisions) AS decisions,
                      (SELECT count(*) FROM decisions WHERE bound = 0) AS unbound,
                      (SELECT count(*) FROM runs WHERE open = 1) AS open_runs,
                      (SELECT count(*) FROM work WHERE state = 'open') AS open_work"""
        )
        return rows[0]
