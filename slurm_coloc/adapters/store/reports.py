# SPDX-License-Identifier: Apache-2.0
"""Reports of the Epilogs: kept from their coming until long after the run was closed by them."""

import json
import sqlite3
from collections.abc import Collection
from typing import Any

Row = dict[str, Any]

# Reports on one run: of its job and restart, from after its submission, and not taken already by a
# run of another decision (an id may come again after `slurmctld -c`).
_OF_RUN = """job_id = ? AND (restart = ? OR restart IS NULL) AND at_s >= ?
             AND (decision IS NULL OR decision = ?)"""


class Reports:
    """The table ``reports``; a part of the store."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def add(self, row: Row, body: Row) -> None:
        """Keep a report; the same again, as from a spool that cannot be emptied, replaces it."""
        keys = (row["job_id"], row["restart"], row["node"])
        same = "job_id = ? AND restart IS ? AND node = ?"
        used = self._connection.execute(
            f"SELECT decision FROM reports WHERE {same} AND at_s = ?", (*keys, row["at_s"])
        ).fetchone()
        self._connection.execute(f"DELETE FROM reports WHERE {same}", keys)
        full = {**row, "body": json.dumps(body), "decision": used[0] if used else None}
        marks = ", ".join("?" * len(full))
        sql = f"INSERT INTO reports ({', '.join(full)}) VALUES ({marks})"
        self._connection.execute(sql, tuple(full.values()))

    def newest(self, run: Row, not_before_s: float) -> Row | None:
        """The newest report on a run that is no older than ``not_before_s``."""
        row = self._connection.execute(
            f"SELECT body FROM reports WHERE {_OF_RUN} ORDER BY rowid DESC",
            _keys(run, not_before_s),
        ).fetchone()
        return json.loads(row[0]) if row else None

    def uses(self, run: Row, not_before_s: float) -> list[Row]:
        """What a run used: a record for each of its nodes that sent one, with ``node``."""
        found = self._connection.execute(
            f"""SELECT node, json_extract(body, '$.used') AS used FROM reports
                WHERE {_OF_RUN} AND used IS NOT NULL ORDER BY rowid""",
            _keys(run, not_before_s),
        )
        return [{**json.loads(used), "node": node} for node, used in found]

    def faulted_beside(
        self, run: Row, uuids: Collection[str], since_s: float, until_s: float
    ) -> bool:
        """Whether another job's report of that time tells of a fault of MPS or of the device on one
        of these GPUs."""
        found = self._connection.execute(
            """SELECT body FROM reports WHERE at_s > ? AND at_s < ? AND job_id <> ?
               AND json_extract(body, '$.evidence.kind') IN ('mps', 'device')""",
            (since_s, until_s, run["job_id"]),
        )
        bodies = (json.loads(body) for (body,) in found)
        return any(set(uuids) & set(body.get("gpu_uuids") or ()) for body in bodies)

    def unblamed(self, since_s: float) -> list[Row]:
        """Ended clients of MPS whose log told of a fault after ``since_s`` that nobody was blamed
        for."""
        found = self._connection.execute(
            """SELECT * FROM runs WHERE open = 0 AND end_s > ? AND outcome = 'failed'
               AND method = 'mps' AND blame IS NULL
               AND json_extract(evidence, '$.kind') IN ('mps', 'device')""",
            (since_s,),
        )
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found]

    def blame(self, run: Row, whose: str, verdict: str) -> None:
        """Blame somebody for the end of a run that has been closed."""
        self._connection.execute(
            """UPDATE runs SET blame = ?, verdict = ?
               WHERE decision = ? AND job_id = ? AND restart = ?""",
            (whose, verdict, run["decision"], run["job_id"], run["restart"]),
        )

    def use(self, run: Row) -> None:
        """A run has ended with the reports on it: they are nobody else's."""
        self._connection.execute(
            """UPDATE reports SET decision = ? WHERE job_id = ?
               AND (restart = ? OR restart IS NULL) AND decision IS NULL""",
            (run["decision"], run["job_id"], run["restart"]),
        )

    def forget(self, before_s: float) -> None:
        """Drop reports older than ``before_s``."""
        self._connection.execute("DELETE FROM reports WHERE at_s < ?", (before_s,))


def _keys(run: Row, not_before_s: float) -> tuple[object, ...]:
    return run["job_id"], run["restart"], not_before_s, run["decision"]
