# SPDX-License-Identifier: Apache-2.0
"""Decisions, the runs of their jobs, what nodes report of them, and what is learned of them."""

import json
from collections.abc import Collection
from dataclasses import asdict, fields

from slurm_coloc.adapters.store.database import Database
from slurm_coloc.adapters.store.table import Table
from slurm_coloc.core.records.runs import ModelPeaks, Report, Run, StoredDecision, Use

ABANDONED = 2  # decisions.bound: the submission never became a job
MOST = 64  # batch sizes and GPU types of one model that are looked at, the newest
_RUN = "decision = ? AND job_id = ? AND restart = ?"
#: The newest runs of a user's training (uid, fingerprint, options), the newest first. Indices give
#: them in this order, so that a training with a hundred thousand runs costs no more than others.
#: What observe mode decided has no runs: a year of it would have to be gone through.
OF_TRAINING = """SELECT runs.* FROM decisions AS same CROSS JOIN runs ON runs.decision = same.id
   WHERE same.mode = 'on' AND same.uid = ? AND same.fingerprint = ? AND same.options IS ?
   ORDER BY same.rowid DESC, runs.job_id DESC, runs.restart DESC LIMIT 400"""
# Reports on one run: of its job and restart, from after its submission, and not taken already by a
# run of another decision (an id may come again after `slurmctld -c`).
_ON_RUN = """job_id = ? AND (restart = ? OR restart IS NULL) AND at_s >= ?
             AND (decision IS NULL OR decision = ?)"""
_OF_REPORT = [one.name for one in fields(Report)]


class Decisions(Table[StoredDecision]):
    """The table ``decisions``: what was decided at submit."""

    RECORD = StoredDecision
    NAME = "decisions"
    KEYS = ("id",)
    INSERT = "INSERT"

    def known(self, decision_id: str) -> bool:
        """Whether there is such a decision."""
        return bool(self._values("SELECT 1 FROM decisions WHERE id = ?", decision_id))

    def unbound(self, uid: int | None = None) -> bool:
        """Whether a decision's job (of ``uid``, or None: of anybody) has not been seen yet."""
        sql = "SELECT 1 FROM decisions WHERE bound = 0 AND (? IS NULL OR uid = ?) LIMIT 1"
        return bool(self._values(sql, uid, uid))

    def bind(self, decision_id: str, job_id: int, partition: str | None = None) -> None:
        """The job of a decision has been seen; ``partition``: that it got, where it named none."""
        self._write(
            """UPDATE decisions SET job_id = coalesce(job_id, ?), bound = 1,
                 partition = coalesce(partition, ?) WHERE id = ?""",
            *(job_id, partition, decision_id),
        )

    def observed(self, job_id: int) -> StoredDecision | None:
        """The newest decision of observe mode whose job this is."""
        where = "job_id = ? AND mode = 'observe' ORDER BY made_s DESC LIMIT 1"
        return next(iter(self._where(where, job_id)), None)

    def abandon(self, before_s: float) -> int:
        """Give up decisions made before ``before_s`` that never became a job."""
        sql = "UPDATE decisions SET bound = ? WHERE bound = 0 AND made_s < ?"
        return self._write(sql, ABANDONED, before_s)


class Runs(Table[Run]):
    """The table ``runs``: opened once, closed once."""

    RECORD = Run
    NAME = "runs"
    KEYS = ("decision", "job_id", "restart")

    def see(self, run: Run) -> None:
        """Insert a run, or refresh what Slurm shows of one that is still open."""
        self.add(run)
        self._write(
            f"""UPDATE runs SET uid = ?, submit_s = coalesce(?, submit_s), state = ?,
                  node = coalesce(?, node), tres = coalesce(?, tres),
                  start_s = coalesce(?, start_s), array_job_id = coalesce(?, array_job_id),
                  array_task = coalesce(?, array_task)
                WHERE {_RUN} AND open = 1""",
            *(run.uid, run.submit_s, run.state, run.node, run.tres, run.start_s),
            *(run.array_job_id, run.array_task),
            *run.key,
        )

    def launched(self, decision: str, job_id: int, restart: int, uuids: Collection[str]) -> bool:
        """Add the GPUs that an open run got on one of its nodes; False when they were known."""
        run = self.of(decision, job_id, restart)
        if run is None or not run.open:
            return False
        known = run.gpu_uuids or ()
        more = tuple(uuid for uuid in uuids if uuid not in known)
        if more:
            self.change(run, gpu_uuids=known + more)
        return bool(more)

    def open(self) -> list[Run]:
        """Runs that have not ended as far as we know, oldest first."""
        return self._where("open = 1 ORDER BY job_id, restart")

    def launched_on(self, uuids: Collection[str]) -> list[Run]:
        """Open runs that a Prolog saw on one of these GPUs."""
        began = self._where("open = 1 AND gpu_uuids IS NOT NULL")
        return [run for run in began if not set(uuids).isdisjoint(run.gpu_uuids or ())]

    def of_job(self, job_id: int) -> list[Run]:
        """All runs of a job id, of all decisions (ids start again after ``slurmctld -c``)."""
        return self._where("job_id = ? ORDER BY rowid", job_id)

    def begun(self, job_id: int, at_s: float) -> Run | None:
        """The newest run of a job id that had begun at ``at_s``, else one of an unknown start."""
        known = "job_id = ? AND (start_s <= ? OR start_s IS NULL)"
        found = self._where(f"{known} ORDER BY start_s IS NULL, rowid DESC LIMIT 1", job_id, at_s)
        return found[0] if found else None

    def of_task(self, array_job_id: int, task: int) -> list[Run]:
        """All runs of an array's task."""
        return self._where("array_job_id = ? AND array_task = ? ORDER BY rowid", array_job_id, task)

    def running_tasks(self) -> list[tuple[int, int, int]]:
        """Job id, array and task of each run of an array's task that goes on."""
        sql = "SELECT job_id, array_job_id, array_task FROM runs WHERE open = 1"
        return self._db.execute(f"{sql} AND array_task IS NOT NULL").fetchall()

    def followed_users(self) -> set[int]:
        """Users with a decision whose job was not seen yet, or with a run that goes on."""
        sql = "SELECT uid FROM decisions WHERE bound = 0 UNION SELECT uid FROM runs WHERE open = 1"
        return set(self._values(sql))

    def goes_on_for(self, uid: int) -> bool:
        """Whether this user has a run that goes on."""
        return bool(self._values("SELECT 1 FROM runs WHERE open = 1 AND uid = ? LIMIT 1", uid))

    def goes_on_of(self, decision_id: str) -> bool:
        """Whether a run of this decision goes on."""
        sql = "SELECT 1 FROM runs WHERE decision = ? AND open = 1 LIMIT 1"
        return bool(self._values(sql, decision_id))

    def close(self, run: Run, **changes: object) -> bool:
        """End a run once; False when it was closed already. Raises TypeError for a field that there
        is not."""
        return self._change(run, "AND open = 1", {"open": False, **changes}) > 0

    def add_uses(self, run: Run, uses: list[Use]) -> None:
        """Keep the records of an ended run whose nodes reported one after the other."""
        self._change(run, "AND open = 0", {"used": uses})

    def beside(self, run: Run, start_s: float, end_s: float) -> list[Run]:
        """The other runs that ran at some time from ``start_s`` to ``end_s``, where they may have
        been on a node of ``run``. One that ended in the second in which this one began, by Slurm's
        clock, was before it."""
        nodes: tuple[object, ...] = ()
        others = (
            f"start_s IS NOT NULL AND start_s < ? AND outcome IS NOT 'put-back' AND NOT ({_RUN})"
        )
        if run.node and not _several(run.node):
            # Told by the index: a run of a week has seen hundreds of thousands end elsewhere.
            others += " AND (node = ? OR node IS NULL OR instr(node, '[') OR instr(node, ','))"
            nodes = (run.node,)
        values = (end_s, *run.key, *nodes)
        return [
            *self._where(f"end_s > ? AND open = 0 AND {others}", start_s, *values),
            *self._where(f"open = 1 AND {others}", *values),
        ]

    def ended_since(self, since_s: float) -> list[Run]:
        """Runs after which their job is over, that ended after ``since_s`` with what they used; in
        the order of their ends."""
        return self._where(
            """open = 0 AND end_s > ? AND used IS NOT NULL AND verdict NOT LIKE 'requeue%'
               AND outcome NOT IN ('requeued', 'put-back', 'slot') ORDER BY end_s""",
            since_s,
        )

    def unblamed(self, since_s: float) -> list[Run]:
        """Ended clients of MPS whose log told of a fault after ``since_s`` that nobody was blamed
        for."""
        return self._where(
            """open = 0 AND end_s > ? AND outcome = 'failed'
               AND method = 'mps' AND blame IS NULL
               AND json_extract(evidence, '$.kind') IN ('mps', 'device')""",
            since_s,
        )

    def oom_share_mib(self, fingerprint: str, options: str, uid: int) -> int | None:
        """Largest share (MiB) in which this user's same model ran out of GPU memory."""
        found = self._values(
            "SELECT share_mib FROM ran_out WHERE uid = ? AND fingerprint = ? AND options = ?",
            *(uid, fingerprint, options),
        )
        return found[0] if found else None

    def forget_ran_out(self, before_s: float) -> None:
        """Drop what ran out of memory last before ``before_s``."""
        self._write("DELETE FROM ran_out WHERE at_s < ?", before_s)

    def completed_peaks_mib(self, decision: str, min_s: float | None = None) -> list[int]:
        """Measured peaks of a decision's completed runs, in the order of their ends. With ``min_s``
        of those that lasted at least so long and of whose memory nothing was missed."""
        every = """NOT EXISTS (SELECT 1 FROM json_each(coalesce(used, '[]'))
                               WHERE json_extract(value, '$.complete') = 0)"""
        return self._values(
            f"""SELECT peak_mib FROM runs WHERE decision = ? AND outcome = 'completed'
               AND peak_mib IS NOT NULL AND coalesce(end_s - start_s, 0) >= ?
               AND {"1" if min_s is None else every} ORDER BY end_s""",
            *(decision, min_s or 0.0),
        )

    def alone_s(self, run: Run, fingerprint: str | None, options: str | None) -> list[float]:
        """Run times (s) of this user's completed runs of the same model with the same options that
        had their GPU for themselves: at most 20, of the newest 400."""
        rows = self._db.execute(
            f"""SELECT end_s - start_s, used FROM ({OF_TRAINING})
                WHERE outcome = 'completed' AND start_s IS NOT NULL AND used IS NOT NULL
                  AND NOT (job_id = ? AND restart = ?) LIMIT 100""",
            (run.uid, fingerprint, options, run.job_id, run.restart),
        )
        alone = [
            lasted_s
            for lasted_s, used in rows
            if not any(one.get("neighbours") for one in json.loads(used))
        ]
        return alone[:20]


class Reports:
    """The table ``reports``: kept from their coming until long after the run was closed by them."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def add(
        self, cluster: str, job_id: int, restart: int | None, node: str, at_s: float, body: str
    ) -> None:
        """Keep a report (``body``: JSON); the same again, as from a spool that cannot be emptied,
        replaces it."""
        keys = (job_id, restart, node)
        same = "job_id = ? AND restart IS ? AND node = ?"
        used = self._db.execute(
            f"SELECT decision FROM reports WHERE {same} AND at_s = ?", (*keys, at_s)
        ).fetchone()
        self._db.execute(f"DELETE FROM reports WHERE {same}", keys)
        self._db.execute(
            """INSERT INTO reports (cluster, job_id, restart, node, at_s, body, decision)
               VALUES (?, ?, ?, ?, ?, ?, ?)""",
            (cluster, *keys, at_s, body, used[0] if used else None),
        )

    def newest(self, run: Run, not_before_s: float) -> Report | None:
        """The newest report on a run that is no older than ``not_before_s``."""
        row = self._db.execute(
            f"SELECT body FROM reports WHERE {_ON_RUN} ORDER BY rowid DESC",
            _keys(run, not_before_s),
        ).fetchone()
        return _report(row[0]) if row else None

    def uses(self, run: Run, not_before_s: float) -> list[Use]:
        """What a run used: a record for each of its nodes that sent one, with ``node``."""
        found = self._db.execute(
            f"""SELECT node, json_extract(body, '$.used') AS used FROM reports
                WHERE {_ON_RUN} AND used IS NOT NULL ORDER BY rowid""",
            _keys(run, not_before_s),
        )
        return [json.loads(used) | {"node": node} for node, used in found]

    def faulted_beside(
        self, run: Run, uuids: Collection[str], since_s: float, until_s: float
    ) -> bool:
        """Whether another job's report of that time tells of a fault of MPS or of the device on one
        of these GPUs."""
        found = self._db.execute(
            """SELECT body FROM reports WHERE at_s > ? AND at_s < ? AND job_id <> ?
               AND json_extract(body, '$.evidence.kind') IN ('mps', 'device')""",
            (since_s, until_s, run.job_id),
        )
        return any(set(uuids) & set(_report(body).gpu_uuids) for (body,) in found)

    def use(self, run: Run) -> None:
        """A run has ended with the reports on it: they are nobody else's."""
        self._db.execute(
            """UPDATE reports SET decision = ? WHERE job_id = ?
               AND (restart = ? OR restart IS NULL) AND decision IS NULL""",
            (run.decision, run.job_id, run.restart),
        )

    def forget(self, before_s: float) -> None:
        """Drop reports older than ``before_s``."""
        self._db.execute("DELETE FROM reports WHERE at_s < ?", (before_s,))


def _several(nodes: str) -> bool:
    """Whether a run's ``node`` is a list of nodes."""
    return "[" in nodes or "," in nodes


def _report(body: str) -> Report:
    told = json.loads(body)
    found = {name: told[name] for name in _OF_REPORT if name in told}
    return Report(**found | {"gpu_uuids": tuple(told.get("gpu_uuids") or ())})


def _keys(run: Run, not_before_s: float) -> tuple[object, ...]:
    return run.job_id, run.restart, not_before_s, run.decision


class Peaks(Table[ModelPeaks]):
    """The table ``peaks``: measured peaks of GPU memory, a row for a user, model, options, GPU type
    and batch. It has sums over runs, not the runs: a question costs the same after a hundred
    thousand of them. A user's estimates learn from his own runs only."""

    RECORD = ModelPeaks
    NAME = "peaks"
    KEYS = ("fingerprint", "uid", "options", "gpu", "batch")

    def of_model(self, uid: int, fingerprint: str, options: str) -> list[ModelPeaks]:
        """What is known of this user's runs of a model with these options."""
        where = "fingerprint = ? AND uid = ? AND options = ? ORDER BY last_s DESC LIMIT ?"
        return self._where(where, fingerprint, uid, options, MOST)

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
