# SPDX-License-Identifier: Apache-2.0
"""History and the durable work list in SQLite (WAL): what survives colocd's death.

Features and figures are stored, never the text or the names of models. Rows are plain dicts whose
keys are the columns of schema.py.
"""

import json
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from slurm_coloc.adapters.store.localdisk import require_local
from slurm_coloc.adapters.store.peaks import Peaks
from slurm_coloc.adapters.store.putbacks import Putbacks
from slurm_coloc.adapters.store.queries import Queries
from slurm_coloc.adapters.store.reports import Reports
from slurm_coloc.adapters.store.schema import MIGRATIONS, migrate
from slurm_coloc.adapters.store.slots import Slots
from slurm_coloc.adapters.store.stretches import Stretches
from slurm_coloc.adapters.store.works import Works
from slurm_coloc.core.recover.next_try import VICTIMS
from slurm_coloc.core.slurm.gres import count_of
from slurm_coloc.errors import ConfigError

Row = dict[str, Any]

# What belongs to a decision beside its runs.
FORGOTTEN_WITH = ("events", "work", "siblings", "putbacks", "slots", "stretches")
FORGOTTEN_AT_ONCE = 200  # rows in one go: submissions wait for it
ABANDONED = 2  # decisions.bound: the submission never became a job


class Store:
    """The database. One writer: colocd; opened by others read-only if at all."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.asked = Queries(db)
        self.peaks = Peaks(db.conn)
        self.putbacks = Putbacks(db.conn)
        self.reports = Reports(db.conn)
        self.slots = Slots(db.conn)
        self.stretches = Stretches(db.conn)
        self.works = Works(db.conn)

    @classmethod
    def open(cls, folder: Path) -> "Store":
        """Open or make ``folder``/coloc.db. Raises ConfigError where that cannot work."""
        require_local(folder)
        path = folder / "coloc.db"
        try:
            connection = sqlite3.connect(path, timeout=5.0, isolation_level=None)
            db = Database(connection)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute("PRAGMA foreign_keys = ON")
            if db.execute("PRAGMA user_version").fetchone()[0] > len(MIGRATIONS):
                raise ConfigError(f"{path}: written by a newer slurm-coloc; install that one")
            migrate(db)
        except sqlite3.Error as err:
            raise ConfigError(f"{path}: {err}") from err
        return cls(db)

    def close(self) -> None:
        """Close the connection."""
        self._db.conn.close()

    @contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[None]:
        """All or nothing; not nested. ``durable``: on the disk before it returns, so that it also
        survives a loss of power."""
        self._db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        self._db.conn.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.conn.execute("ROLLBACK")
            raise
        self._db.conn.execute("COMMIT")
        self._db.execute("PRAGMA synchronous = NORMAL")

    def _rows(self, sql: str, *values: object) -> list[Row]:
        return list(self._db.query(sql, values))

    def _one(self, sql: str, *values: object) -> Row | None:
        rows = self._rows(sql, *values)
        return rows[0] if rows else None

    def _write(self, sql: str, *values: object) -> int:
        return int(self._db.conn.execute(sql, values).rowcount)

    def _insert(self, table: str, row: Row, *, ignore: bool = False) -> None:
        names = ", ".join(row)
        marks = ", ".join("?" * len(row))
        verb = "INSERT OR IGNORE" if ignore else "INSERT"
        self._write(f"{verb} INTO {table} ({names}) VALUES ({marks})", *row.values())

    # decisions

    def add_decision(self, row: Row) -> None:
        """Record a decision made at submit."""
        self._insert("decisions", row)

    def decision(self, decision_id: str) -> Row | None:
        """One decision."""
        return self._one("SELECT * FROM decisions WHERE id = ?", decision_id)

    def unbound(self, uid: int | None = None) -> bool:
        """Whether a decision's job (of ``uid``, or None: of anybody) has not been seen yet."""
        sql = "SELECT 1 FROM decisions WHERE bound = 0 AND (? IS NULL OR uid = ?) LIMIT 1"
        return self._one(sql, uid, uid) is not None

    def followed_users(self) -> set[int]:
        """Users with a decision whose job was not seen yet, or with a run that goes on."""
        rows = self._rows(
            "SELECT uid FROM decisions WHERE bound = 0 UNION SELECT uid FROM runs WHERE open = 1"
        )
        return {row["uid"] for row in rows}

    def followed(self, uid: int) -> bool:
        """Whether this user has a decision whose job was not seen yet, or a run that goes on."""
        row = self._one("SELECT 1 FROM runs WHERE open = 1 AND uid = ? LIMIT 1", uid)
        return row is not None or self.unbound(uid)

    def follows(self, decision_id: str) -> bool:
        """Whether a run of this decision goes on."""
        sql = "SELECT 1 FROM runs WHERE decision = ? AND open = 1 LIMIT 1"
        return self._one(sql, decision_id) is not None

    def bind(self, decision_id: str, job_id: int) -> None:
        """The job of a decision has been seen."""
        self._write(
            "UPDATE decisions SET job_id = coalesce(job_id, ?), bound = 1 WHERE id = ?",
            job_id,
            decision_id,
        )

    def abandon(self, before_s: float) -> int:
        """Give up decisions made before ``before_s`` that never became a job."""
        return self._write(
            "UPDATE decisions SET bound = ? WHERE bound = 0 AND made_s < ?", ABANDONED, before_s
        )

    def oom_share_mib(self, fingerprint: str, options: str, uid: int) -> int | None:
        """Largest share (MiB) in which this user's same model ran out of GPU memory."""
        row = self._one(
            # A user's runs out of memory are few, his submissions of one model many: CROSS JOIN
            # makes SQLite begin with the former (it is in the path of every submission).
            f"""SELECT max(runs.share_mib) AS mib FROM runs CROSS JOIN decisions
               ON decisions.id = runs.decision
               WHERE runs.outcome = 'oom-gpu' AND runs.uid = ? AND fingerprint = ? AND options = ?
               AND coalesce(runs.blame, '') NOT IN ({", ".join("?" * len(VICTIMS))})
            """,
            uid,
            fingerprint,
            options,
            *map(str, VICTIMS),
        )
        return row["mib"] if row else None

    # runs

    def see_run(self, row: Row) -> None:
        """Insert a run, or refresh what Slurm shows of one that is still open."""
        self._insert("runs", row, ignore=True)
        keys = ("decision", "job_id", "restart")
        changes = [name for name in row if name not in keys and row[name] is not None]
        assignments = ", ".join(f"{name} = ?" for name in changes)
        self._write(
            f"UPDATE runs SET {assignments} WHERE decision = ? AND job_id = ? AND restart = ?"
            " AND open = 1",
            *[row[name] for name in changes],
            *[row[name] for name in keys],
        )

    def launched(self, decision: str, job_id: int, restart: int, uuids: Collection[str]) -> bool:
        """Add the GPUs that an open run got on one of its nodes; False when they were known."""
        key = (decision, job_id, restart)
        where = "decision = ? AND job_id = ? AND restart = ? AND open = 1"
        row = self._one(f"SELECT gpu_uuids FROM runs WHERE {where}", *key)
        if row is None:
            return False
        known = json.loads(row["gpu_uuids"] or "[]")
        more = [uuid for uuid in uuids if uuid not in known]
        if more:
            text = json.dumps([*known, *more])
            self._write(f"UPDATE runs SET gpu_uuids = ? WHERE {where}", text, *key)
        return bool(more)

    def open_runs(self) -> list[Row]:
        """Runs that have not ended as far as we know, oldest first."""
        return self._rows("SELECT * FROM runs WHERE open = 1 ORDER BY job_id, restart")

    def runs_of_job(self, job_id: int) -> list[Row]:
        """All runs of a job id, of all decisions (ids start again after ``slurmctld -c``)."""
        return self._rows("SELECT * FROM runs WHERE job_id = ? ORDER BY rowid", job_id)

    def close_run(self, run: Row, **changes: object) -> bool:
        """End a run once; False when it was closed already."""
        names = ", ".join(f"{name} = ?" for name in changes)
        done = self._write(
            f"UPDATE runs SET open = 0, {names} WHERE decision = ? AND job_id = ? AND restart = ?"
            " AND open = 1",
            *changes.values(),
            run["decision"],
            run["job_id"],
            run["restart"],
        )
        return done > 0

    def keep_uses(self, run: Row, uses: list[Row]) -> None:
        """Keep the records of an ended run whose nodes reported one after the other."""
        self._write(
            """UPDATE runs SET used = ? WHERE decision = ? AND job_id = ? AND restart = ?
               AND open = 0""",
            json.dumps(uses),
            run["decision"],
            run["job_id"],
            run["restart"],
        )

    def forget_history(self, before_s: float) -> int:
        """Drop some decisions made before ``before_s`` whose runs have all ended, with all of
        theirs; returns how many, so that the caller can go on later."""
        old = self._rows(
            """SELECT id FROM decisions WHERE made_s < ? AND NOT EXISTS
               (SELECT 1 FROM runs WHERE runs.decision = decisions.id AND runs.open = 1) LIMIT ?""",
            before_s,
            FORGOTTEN_AT_ONCE,
        )
        self.peaks.forget(before_s)
        with self.transaction():
            for row in old:
                for table in (*FORGOTTEN_WITH, "runs"):
                    self._write(f"DELETE FROM {table} WHERE decision = ?", row["id"])
                self._write("DELETE FROM decisions WHERE id = ?", row["id"])
        return len(old)

    # arrays whose waiting tasks get another request

    def peaks_mib(self, decision: str) -> list[int]:
        """Measured peaks of a decision's completed runs, in the order of their ends."""
        rows = self._rows(
            """SELECT peak_mib FROM runs WHERE decision = ? AND outcome = 'completed'
               AND peak_mib IS NOT NULL ORDER BY end_s""",
            decision,
        )
        return [row["peak_mib"] for row in rows]

    def add_siblings(self, row: Row) -> bool:
        """Plan another request for the waiting tasks of a decision; False where that same request
        was planned before. What was planned after an out-of-memory is not made smaller, and another
        out-of-memory makes it larger: then ``was`` names both requests that it replaces."""
        known = self.siblings(row["decision"])
        if known is None:
            self._insert("siblings", {**row, "tasks": 0, "state": "open"})
            return True
        after_oom = known["why"] == "oom-gpu"
        if known["tres"] == row["tres"] or (after_oom and not _larger(row, known)):
            return False
        was = row["was"]
        if after_oom:
            was = " ".join(dict.fromkeys([*known["was"].split(), known["tres"], *was.split()]))
        changes = {name: row[name] for name in ("tres", "why", "updated_s")}
        self.change_siblings(row["decision"], **changes, was=was, state="open", tries=0)
        return True

    def open_siblings(self) -> list[Row]:
        """Arrays whose waiting tasks are still to be changed."""
        return self._rows("SELECT * FROM siblings WHERE state = 'open' ORDER BY updated_s")

    def siblings(self, decision: str) -> Row | None:
        """What the waiting tasks of a decision were given."""
        return self._one("SELECT * FROM siblings WHERE decision = ?", decision)

    def change_siblings(self, decision: str, **changes: object) -> None:
        """Change columns of one array's plan."""
        names = ", ".join(f"{name} = ?" for name in changes)
        self._write(f"UPDATE siblings SET {names} WHERE decision = ?", *changes.values(), decision)

    # events: the story of a job, for `coloc explain`

    def note(self, at_s: float, decision: str, job_id: int | None, kind: str, text: str) -> None:
        """Add a line to a job's story."""
        self._insert(
            "events",
            {"at_s": at_s, "decision": decision, "job_id": job_id, "kind": kind, "text": text},
        )

    def story(self, decision: str, job_id: int | None) -> list[Row]:
        """Events of a decision; of one job of it where several share it (arrays)."""
        return self._rows(
            """SELECT at_s, kind, text, job_id FROM events WHERE decision = ?
               AND (job_id IS NULL OR job_id = ? OR ? IS NULL) ORDER BY rowid""",
            decision,
            job_id,
            job_id,
        )


def _larger(row: Row, known: Row) -> bool:
    """Whether a plan after an out-of-memory gives more than another; no shards: a whole GPU."""
    if row["why"] != "oom-gpu":
        return False
    had, gives = count_of(known["tres"], "shard"), count_of(row["tres"], "shard")
    return had is not None and (gives is None or gives > had)
