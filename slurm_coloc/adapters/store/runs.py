# SPDX-License-Identifier: Apache-2.0
"""The runs of the jobs that colocd follows: opened once, closed once."""

import json
from collections.abc import Collection

from slurm_coloc.adapters.store.table import Table
from slurm_coloc.core.records.reports import Use
from slurm_coloc.core.records.runs import OfRun, Run
from slurm_coloc.core.recover.next_try import VICTIMS

_RUN = "decision = ? AND job_id = ? AND restart = ?"


class Runs(Table[Run]):
    """The table ``runs``; a part of the store."""

    RECORD = Run
    NAME = "runs"
    KEYS = ("decision", "job_id", "restart")

    def see(self, run: Run) -> None:
        """Insert a run, or refresh what Slurm shows of one that is still open."""
        self.add(run)
        self._write(
            f"""UPDATE runs SET uid = ?, submit_s = coalesce(?, submit_s), state = ?,
                  node = coalesce(?, node), tres = coalesce(?, tres),
                  start_s = coalesce(?, start_s)
                WHERE {_RUN} AND open = 1""",
            *(run.uid, run.submit_s, run.state, run.node, run.tres, run.start_s),
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
        return self._rows("SELECT * FROM runs WHERE open = 1 ORDER BY job_id, restart")

    def of_job(self, job_id: int) -> list[Run]:
        """All runs of a job id, of all decisions (ids start again after ``slurmctld -c``)."""
        return self._rows("SELECT * FROM runs WHERE job_id = ? ORDER BY rowid", job_id)

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

    def beside(self, run: OfRun, start_s: float, end_s: float) -> list[Run]:
        """The other runs that ran at some time from ``start_s`` to ``end_s``. One that ended in the
        second in which this one began, by Slurm's clock, was before it."""
        return self._rows(
            f"""SELECT * FROM runs WHERE (end_s > ? OR open = 1)
                AND start_s IS NOT NULL AND start_s < ? AND outcome IS NOT 'put-back'
                AND NOT ({_RUN})""",
            start_s,
            end_s,
            *run.key,
        )

    def unblamed(self, since_s: float) -> list[Run]:
        """Ended clients of MPS whose log told of a fault after ``since_s`` that nobody was blamed
        for."""
        return self._rows(
            """SELECT * FROM runs WHERE open = 0 AND end_s > ? AND outcome = 'failed'
               AND method = 'mps' AND blame IS NULL
               AND json_extract(evidence, '$.kind') IN ('mps', 'device')""",
            since_s,
        )

    def oom_share_mib(self, fingerprint: str, options: str, uid: int) -> int | None:
        """Largest share (MiB) in which this user's same model ran out of GPU memory."""
        found: list[int | None] = self._values(
            # A user's runs out of memory are few, his submissions of one model many: CROSS JOIN
            # makes SQLite begin with the former (it is in the path of every submission).
            f"""SELECT max(runs.share_mib) FROM runs CROSS JOIN decisions
               ON decisions.id = runs.decision
               WHERE runs.outcome = 'oom-gpu' AND runs.uid = ? AND fingerprint = ? AND options = ?
               AND coalesce(runs.blame, '') NOT IN ({", ".join("?" * len(VICTIMS))})""",
            *(uid, fingerprint, options),
            *map(str, VICTIMS),
        )
        return found[0]

    def completed_peaks_mib(self, decision: str) -> list[int]:
        """Measured peaks of a decision's completed runs, in the order of their ends."""
        return self._values(
            """SELECT peak_mib FROM runs WHERE decision = ? AND outcome = 'completed'
               AND peak_mib IS NOT NULL ORDER BY end_s""",
            decision,
        )

    def alone_s(self, run: Run, fingerprint: str | None, options: str | None) -> list[float]:
        """Run times (s) of this user's completed runs of the same model with the same options that
        had their GPU for themselves, the newest 20."""
        rows = self._db.execute(
            """SELECT runs.end_s - runs.start_s, runs.used
               FROM runs JOIN decisions ON decisions.id = runs.decision
               WHERE runs.uid = ? AND decisions.fingerprint = ? AND decisions.options = ?
                 AND runs.outcome = 'completed' AND runs.start_s IS NOT NULL
                 AND runs.used IS NOT NULL AND NOT (runs.job_id = ? AND runs.restart = ?)
               ORDER BY runs.rowid DESC LIMIT 100""",
            (run.uid, fingerprint, options, run.job_id, run.restart),
        )
        alone = [
            lasted_s
            for lasted_s, used in rows
            if not any(one.get("neighbours") for one in json.loads(used))
        ]
        return alone[:20]
