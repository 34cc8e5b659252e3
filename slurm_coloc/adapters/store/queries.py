# SPDX-License-Identifier: Apache-2.0
"""What people ask of the history: `coloc jobs`, `history`, `report`, `status`. It only reads."""

from slurm_coloc.adapters.store.database import Database
from slurm_coloc.adapters.store.runs import OF_TRAINING
from slurm_coloc.adapters.store.table import records
from slurm_coloc.core.decide.decision import BY_SITE, BY_USER
from slurm_coloc.core.records.queries import Counts, OpenRuns, RunWithDecision, Tally, UserSum
from slurm_coloc.core.records.runs import StoredDecision
from slurm_coloc.core.report.past import PastRun


def _of_user(table: str, uid: int | None) -> str:
    """Those of the user that is value 2 of the question; None: everybody's. SQLite would not take
    the user's index where both were one condition."""
    return "?2 IS NULL" if uid is None else f"{table}.uid = ?2"


#: the decision has an estimate: not a number that the user named, or the site for what has none
ESTIMATED = f"coalesce(decisions.estimator, '') NOT IN ('{BY_USER}', '{BY_SITE}')"


class Queries:
    """Questions over several tables; a part of the store.

    A CROSS JOIN makes SQLite begin with its left side, a + keeps it from an index: what is asked of
    the last days may cost what these days have, not what the history has."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def recent_runs(
        self,
        uid: int | None,
        limit: int,
        *,
        only_open: bool = False,
        open_first: bool = False,
        since_s: float = 0.0,
    ) -> list[RunWithDecision]:
        """Newest runs with their decisions, and the recovery that a run came by; of one user where
        ``uid`` is given; that go on, or ended after ``since_s``. ``open_first``: those that go on
        come before the others, and none of them is left out for a newer one that has ended."""
        # Each way has an index, and of what ended only the newest ends are put in order.
        mine = _of_user("runs", uid)
        if only_open:
            chosen = f"SELECT rowid FROM runs WHERE open = 1 AND {mine}"
        elif since_s:
            chosen = f"""SELECT rowid FROM runs WHERE open = 1 AND {mine} UNION SELECT * FROM
              (SELECT rowid FROM runs WHERE end_s >= ?1 AND {mine}
               ORDER BY end_s DESC LIMIT ?3)"""
        else:
            chosen = f"SELECT rowid FROM runs WHERE {mine} ORDER BY rowid DESC LIMIT ?3"
            if open_first:
                chosen = f"""SELECT rowid FROM runs WHERE open = 1 AND {mine}
                  UNION SELECT * FROM ({chosen})"""
        order = "runs.open DESC, runs.rowid DESC" if open_first else "runs.rowid DESC"
        return records(
            RunWithDecision,
            self._db,
            f"""SELECT runs.*, decisions.account, decisions.partition, decisions.action,
                       decisions.reason, decisions.shards, decisions.shard_mib,
                       decisions.shards_per_gpu, decisions.memory_mib, decisions.upper_mib,
                       decisions.estimator, decisions.made_s, decisions.smact,
                       json_extract(decisions.request, '$.name') AS name,
                       work.way AS retry_way, work.cause AS retry_cause,
                       (SELECT job_id FROM culprits WHERE victim_decision = runs.decision
                          AND victim_job = runs.job_id AND victim_restart = runs.restart - 1
                       ) AS retry_culprit,
                       (SELECT count(*) FROM culprits WHERE decision = runs.decision
                          AND job_id = runs.job_id AND restart = runs.restart) AS victims
                FROM runs JOIN decisions ON decisions.id = runs.decision
                LEFT JOIN work ON work.decision = runs.decision AND work.job_id = runs.job_id
                  AND work.restart = runs.restart - 1
                WHERE runs.rowid IN ({chosen}) ORDER BY {order} LIMIT ?3""",
            *(since_s, uid, limit),
        )

    def lasted_s(self, decision: str) -> list[float]:
        """Run times (s) of completed runs of a decision's user, model and options: the newest 20
        among the last 400 of any outcome."""
        training = self._db.execute(
            "SELECT uid, fingerprint, options FROM decisions WHERE id = ?", (decision,)
        ).fetchone()
        rows = self._db.execute(
            f"""SELECT end_s - start_s FROM ({OF_TRAINING})
                WHERE outcome = 'completed' AND start_s IS NOT NULL LIMIT 20""",
            training or (None, None, None),
        )
        return [float(one) for (one,) in rows]

    def past_runs(self, uid: int | None, since_s: float, limit: int) -> list[PastRun]:
        """Runs that ended after ``since_s``, the newest first; of one user where ``uid`` is given.
        Those that observe mode decided on ran as they were submitted: they are not there."""
        return records(
            PastRun,
            self._db,
            f"""SELECT runs.job_id, runs.uid,
                 coalesce(decisions.account, json_extract(decisions.request, '$.default_account'))
                   AS account,
                 decisions.partition, coalesce(runs.share_mib, 0) > 0 AS shared,
                 coalesce(runs.outcome, '') AS outcome, runs.blame, runs.verdict, runs.submit_s,
                 runs.start_s, runs.end_s, coalesce(runs.gpu_uuids, '[]') AS gpus, runs.peak_mib,
                 iif({ESTIMATED}, decisions.memory_mib, NULL) AS memory_mib,
                 iif({ESTIMATED}, decisions.upper_mib, NULL) AS upper_mib,
                 runs.share_mib, decisions.smact, runs.method,
                 EXISTS (SELECT 1 FROM events WHERE events.decision = runs.decision
                   AND events.job_id = runs.job_id AND events.kind = 'idle' AND events.at_s
                     BETWEEN coalesce(runs.start_s, runs.end_s) AND runs.end_s) AS idle
               FROM runs CROSS JOIN decisions ON decisions.id = runs.decision
               WHERE runs.open = 0 AND runs.end_s > ?1 AND {_of_user("runs", uid)}
                 AND decisions.mode = 'on'
               ORDER BY runs.end_s DESC LIMIT ?3""",
            *(since_s, uid, limit),
        )

    def used_by_user(self, uid: int | None, since_s: float) -> list[UserSum]:
        """Runs that ended after ``since_s`` by user: how many, how they ended, GPU hours, and sums
        (MiB) over those whose estimate, reservation and peak are known."""
        return records(
            UserSum,
            self._db,
            f"""SELECT runs.uid AS uid, count(*) AS runs,
                 sum(runs.share_mib > 0) AS shared, sum(runs.outcome = 'completed') AS completed,
                 sum(runs.outcome = 'oom-gpu') AS oom,
                 sum(runs.outcome = 'put-back'
                     OR coalesce(runs.verdict, '') IN ('requeue', 'requeue-victim')) AS put_back,
                 sum((runs.end_s - coalesce(runs.start_s, runs.end_s))
                     * max(1, json_array_length(coalesce(runs.gpu_uuids, '[]')))) / 3600.0 AS hours,
                 count(iif(known, 1, NULL)) AS measured,
                 coalesce(sum(iif(known, runs.peak_mib, 0)), 0) AS peak_mib,
                 coalesce(sum(iif(known, decisions.memory_mib, 0)), 0) AS estimate_mib,
                 coalesce(sum(iif(known, runs.share_mib, 0)), 0) AS reserved_mib
               FROM (SELECT *, share_mib > 0 AND peak_mib IS NOT NULL AS known FROM runs) AS runs
               CROSS JOIN decisions ON decisions.id = runs.decision
               WHERE runs.open = 0 AND runs.end_s > ?1 AND {_of_user("runs", uid)}
               GROUP BY +runs.uid ORDER BY hours DESC""",
            *(since_s, uid),
        )

    def observed(self, uid: int | None, limit: int, since_s: float = 0.0) -> list[StoredDecision]:
        """Newest decisions made in observe mode after ``since_s``; of one user where ``uid`` is
        given."""
        return records(
            StoredDecision,
            self._db,
            f"""SELECT * FROM decisions WHERE mode = 'observe' AND {_of_user("decisions", uid)}
                AND made_s >= ?1 ORDER BY rowid DESC LIMIT ?3""",
            *(since_s, uid, limit),
        )

    def tallies(self) -> list[Tally]:
        """All that is counted for metrics."""
        return records(Tally, self._db, "SELECT what, labels, n FROM tallies")

    def open_runs(self) -> list[OpenRuns]:
        """How many runs go on, by state and decision."""
        return records(
            OpenRuns,
            self._db,
            """SELECT runs.state, decisions.action, count(*) AS runs
               FROM runs JOIN decisions ON decisions.id = runs.decision
               WHERE runs.open = 1 GROUP BY 1, 2""",
        )

    def counts(self) -> Counts:
        """Rows by kind, for `status`."""
        rows = records(
            Counts,
            self._db,
            """SELECT (SELECT count(*) FROM decisions) AS decisions,
                      (SELECT count(*) FROM decisions WHERE bound = 0) AS unbound,
                      (SELECT count(*) FROM runs WHERE open = 1) AS open_runs,
                      (SELECT count(*) FROM work WHERE state = 'open') AS open_work""",
        )
        return rows[0]

    def open_work(self) -> int:
        """How many recoveries are under way."""
        sql = "SELECT count(*) FROM work WHERE state = 'open'"
        return int(self._db.execute(sql).fetchone()[0])
