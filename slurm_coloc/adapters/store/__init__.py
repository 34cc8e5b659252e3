# SPDX-License-Identifier: Apache-2.0
"""History and the durable work list in SQLite (WAL): what survives colocd's death.

Features and figures are stored, never the text or the names of models. Rows are records of
core/records.
"""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from slurm_coloc.adapters.store.culprits import Culprits
from slurm_coloc.adapters.store.database import Database
from slurm_coloc.adapters.store.lists import ArrayPlans, Putbacks, Recoveries, Slots, Stretches
from slurm_coloc.adapters.store.localdisk import require_local
from slurm_coloc.adapters.store.observed import ObservedJobs
from slurm_coloc.adapters.store.pairs import Pairs
from slurm_coloc.adapters.store.queries import Queries
from slurm_coloc.adapters.store.runs import Decisions, Peaks, Reports, Runs
from slurm_coloc.adapters.store.schema import MIGRATIONS, migrate
from slurm_coloc.adapters.store.table import records
from slurm_coloc.core.records.runs import Event
from slurm_coloc.errors import ConfigError

# What belongs to a decision, its runs last.
OF_DECISION = ("events", "work", "siblings", "putbacks", "slots", "stretches", "culprits", "runs")
FORGOTTEN_AT_ONCE = 200  # rows in one go: submissions wait for it

log = structlog.get_logger()


def _copy_of(path: Path, layout: int) -> Path:
    return path.with_name(f"{path.name}.layout-{layout}")


def _keep(db: Database, path: Path, layout: int) -> None:
    """A copy of the database as it is, for the way back to the release that wrote it. In whole or
    not at all: a copy that was cut off would be put back. Without room for it the upgrade goes on.
    """
    copy, part = _copy_of(path, layout), path.with_name(f"{path.name}.layout-{layout}.part")
    part.unlink(missing_ok=True)
    try:
        db.execute("VACUUM INTO ?", (str(part),))
        part.chmod(path.stat().st_mode & 0o777)
        part.replace(copy)
    except (OSError, sqlite3.Error) as err:
        part.unlink(missing_ok=True)
        log.warning("database", error=str(err), result=f"no copy of layout {layout} for a way back")
    else:
        log.info("database", layout=layout, result=f"{copy} is its copy for a way back")


def _too_new(path: Path, layout: int) -> str:
    text = (
        f"{path}: written by a newer slurm-coloc (its layout is {layout}, this release knows"
        f" {len(MIGRATIONS)}); install that release"
    )
    copy = _copy_of(path, len(MIGRATIONS))
    if copy.exists():
        text += f", or put its copy from before the upgrade back: {copy}"
    return text


class Store:
    """The database. One writer: colocd's main process; its front reads."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.arrays = ArrayPlans(db)
        self.culprits = Culprits(db)
        self.decisions = Decisions(db)
        self.observed = ObservedJobs(db)
        self.pairs = Pairs(db)
        self.peaks = Peaks(db)
        self.putbacks = Putbacks(db)
        self.queries = Queries(db)
        self.recoveries = Recoveries(db)
        self.reports = Reports(db)
        self.runs = Runs(db)
        self.slots = Slots(db)
        self.stretches = Stretches(db)

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
            layout = int(db.execute("PRAGMA user_version").fetchone()[0])
            if layout > len(MIGRATIONS):
                raise ConfigError(_too_new(path, layout))
            if 0 < layout < len(MIGRATIONS):
                _keep(db, path, layout)
            migrate(db)
        except sqlite3.Error as err:
            raise ConfigError(f"{path}: {err}") from err
        return cls(db)

    @classmethod
    def read_only(cls, folder: Path) -> "Store":
        """Open ``folder``/coloc.db, which another process writes, to read it, in any thread. Raises
        ConfigError."""
        path = folder / "coloc.db"
        try:
            connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode=ro",
                uri=True,
                timeout=5.0,
                isolation_level=None,
                check_same_thread=False,
            )
            connection.execute("PRAGMA query_only = ON")
            number = connection.execute("PRAGMA user_version").fetchone()[0]
        except sqlite3.Error as err:
            raise ConfigError(f"{path}: {err}") from err
        if number != len(MIGRATIONS):
            raise ConfigError(f"{path}: its layout is {number}, not {len(MIGRATIONS)}")
        return cls(Database(connection))

    def close(self) -> None:
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

    def note(self, decision: str, job_id: int | None, kind: str, text: str) -> None:
        """Add an event, of now, to what `coloc explain` tells of a job."""
        sql = "INSERT INTO events (at_s, decision, job_id, kind, text) VALUES (?, ?, ?, ?, ?)"
        self._db.execute(sql, (time.time(), decision, job_id, kind, text))

    def events(self, decision: str, job_id: int | None) -> list[Event]:
        """Events of a decision; of one job of it where several share it (arrays)."""
        return records(
            Event,
            self._db,
            """SELECT at_s, kind, text, job_id FROM events WHERE decision = ?
               AND (job_id IS NULL OR job_id = ? OR ? IS NULL) ORDER BY rowid""",
            *(decision, job_id, job_id),
        )

    def forget_history(self, before_s: float) -> int:
        """Drop some decisions made before ``before_s`` whose runs have all ended, with all of
        theirs; returns how many, so that the caller can go on later."""
        old = self._db.execute(
            """SELECT id FROM decisions WHERE made_s < ? AND NOT EXISTS
               (SELECT 1 FROM runs WHERE runs.decision = decisions.id AND runs.open = 1) LIMIT ?""",
            (before_s, FORGOTTEN_AT_ONCE),
        ).fetchall()
        self.pairs.forget(before_s)
        self.peaks.forget(before_s)
        self.observed.forget(before_s)
        self.runs.forget_ran_out(before_s)
        with self.transaction():
            for decision in old:
                for table in OF_DECISION:
                    self._db.execute(f"DELETE FROM {table} WHERE decision = ?", decision)
                self._db.execute("DELETE FROM decisions WHERE id = ?", decision)
        return len(old)
