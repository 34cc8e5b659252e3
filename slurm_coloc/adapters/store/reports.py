# SPDX-License-Identifier: Apache-2.0
"""Reports of the Epilogs: kept from their coming until long after the run was closed by them."""

import json
from collections.abc import Collection
from dataclasses import fields

from sqlite_utils import Database

from slurm_coloc.core.records.runs import Report, Run, Use

# Reports on one run: of its job and restart, from after its submission, and not taken already by a
# run of another decision (an id may come again after `slurmctld -c`).
_OF_RUN = """job_id = ? AND (restart = ? OR restart IS NULL) AND at_s >= ?
             AND (decision IS NULL OR decision = ?)"""
_NAMES = [one.name for one in fields(Report)]


class Reports:
    """The table ``reports``; a part of the store."""

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
            f"SELECT body FROM reports WHERE {_OF_RUN} ORDER BY rowid DESC",
            _keys(run, not_before_s),
        ).fetchone()
        return _report(row[0]) if row else None

    def uses(self, run: Run, not_before_s: float) -> list[Use]:
        """What a run used: a record for each of its nodes that sent one, with ``node``."""
        found = self._db.execute(
            f"""SELECT node, json_extract(body, '$.used') AS used FROM reports
                WHERE {_OF_RUN} AND used IS NOT NULL ORDER BY rowid""",
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


def _report(body: str) -> Report:
    told = json.loads(body)
    found = {name: told[name] for name in _NAMES if name in told}
    return Report(**found | {"gpu_uuids": tuple(told.get("gpu_uuids") or ())})


def _keys(run: Run, not_before_s: float) -> tuple[object, ...]:
    return run.job_id, run.restart, not_before_s, run.decision
