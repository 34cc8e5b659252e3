# SPDX-License-Identifier: Apache-2.0
"""The lists that colocd works through: recoveries, put-backs, arrays, time slots, time limits."""

from typing import ClassVar, TypeVar

from slurm_coloc.adapters.store.table import Table, records
from slurm_coloc.core.records.lists import (
    ArrayPlan,
    Listed,
    PutBack,
    Recovery,
    SlottedJob,
    StretchedRun,
)
from slurm_coloc.core.records.queries import UnfitNode
from slurm_coloc.core.records.runs import PresentRun, Run
from slurm_coloc.core.recover.next_try import VICTIMS
from slurm_coloc.core.slurm.gres import count_of

DAY_S = 86400.0
#: recoveries that count against the caps: those for the job's own need
_OWN = f"cause NOT IN ({', '.join(repr(str(one)) for one in sorted(VICTIMS))})"
L = TypeVar("L", bound=Listed)


class _ListOfRuns(Table[L]):
    """A list with a row for a run."""

    KEYS: ClassVar[tuple[str, ...]] = ("decision", "job_id", "restart")

    def open(self) -> list[L]:
        """Those under way, oldest first."""
        return self._where("state = 'open' ORDER BY created_s")

    def of_job(self, decision: str, job_id: int) -> list[L]:
        """All of a job, the first run first."""
        return self._where("decision = ? AND job_id = ? ORDER BY restart", decision, job_id)


class Recoveries(_ListOfRuns[Recovery]):
    """The table ``work``; a part of the store."""

    RECORD = Recovery
    NAME = "work"

    def raised(self) -> list[Recovery]:
        """Recovered jobs that were put first in the queue, the first one first."""
        return self._where("raised_s IS NOT NULL AND state <> 'open' ORDER BY raised_s")

    def tally(self, job_id: int, decision: str, uid: int, now_s: float) -> tuple[int, int, int]:
        """Recoveries for its own need of this job, and of this user and of all in 24 hours."""
        day_ago_s = now_s - DAY_S
        of_job = self._count(f"decision = ? AND job_id = ? AND {_OWN}", decision, job_id)
        of_user = self._count(f"uid = ? AND created_s > ? AND {_OWN}", uid, day_ago_s)
        return of_job, of_user, self._count(f"created_s > ? AND {_OWN}", day_ago_s)

    def fronts(self, uid: int, now_s: float) -> int:
        """How many recoveries of this user in 24 hours were put first in the queue, or will be."""
        return self._count("uid = ? AND created_s > ? AND front = 1", uid, now_s - DAY_S)


class Putbacks(_ListOfRuns[PutBack]):
    """The table ``putbacks``: runs that were put back before they began, because their GPUs were
    not fit for them. A row is open until its job is where it belongs."""

    RECORD = PutBack
    NAME = "putbacks"

    def open_of(self, decision: str, job_id: int) -> list[PutBack]:
        """Those of one job that are under way."""
        return self._where("state = 'open' AND decision = ? AND job_id = ?", decision, job_id)

    def excluding(self, decision: str, job_id: int) -> list[PutBack]:
        """Those of one job whose node it still excludes by us, also where it started elsewhere."""
        return self._where("excluded = 1 AND decision = ? AND job_id = ?", decision, job_id)

    def count(self, decision: str, job_id: int) -> int:
        """How often a job was put back."""
        return self._count("decision = ? AND job_id = ?", decision, job_id)

    def since(self, since_s: float) -> list[UnfitNode]:
        """Nodes with what was wrong there after ``since_s``, the newest first."""
        return records(
            UnfitNode,
            self._db,
            """SELECT node, count(*) AS runs, max(created_s) AS last_s, why FROM putbacks
               WHERE created_s > ? GROUP BY node ORDER BY last_s DESC LIMIT 50""",
            since_s,
        )


class ArrayPlans(Table[ArrayPlan]):
    """The table ``siblings``: arrays whose waiting tasks get another request."""

    RECORD = ArrayPlan
    NAME = "siblings"
    KEYS = ("decision",)

    def open(self) -> list[ArrayPlan]:
        """Arrays whose waiting tasks are still to be changed."""
        return self._where("state = 'open' ORDER BY updated_s")

    def plan(self, new: ArrayPlan) -> bool:
        """Plan another request for the waiting tasks of a decision; False where that same request
        was planned before. What was planned after an out-of-memory is not made smaller, and another
        out-of-memory makes it larger: then ``was`` names both requests that it replaces."""
        known = self.of(new.decision)
        if known is None:
            self.add(new)
            return True
        after_oom = known.why == "oom-gpu"
        if known.tres == new.tres or (after_oom and not _larger(new, known)):
            return False
        was = new.was
        if after_oom:
            was = " ".join(dict.fromkeys([*known.was.split(), known.tres, *was.split()]))
        same = {"why": new.why, "updated_s": new.updated_s}
        self.change(known, tres=new.tres, was=was, state="open", tries=0, **same)
        return True


def _larger(new: ArrayPlan, known: ArrayPlan) -> bool:
    """Whether a plan after an out-of-memory gives more than another; no shards: a whole GPU."""
    if new.why != "oom-gpu":
        return False
    had, gives = count_of(known.tres, "shard"), count_of(new.tres, "shard")
    return had is not None and (gives is None or gives > had)


class Slots(Table[SlottedJob]):
    """The table ``slots``: jobs with time slots, and how much of their time they have used."""

    RECORD = SlottedJob
    NAME = "slots"
    KEYS = ("decision", "job_id")

    def live(self) -> list[SlottedJob]:
        """Those that are looked after, oldest first."""
        return self._where("state IN ('open', 'dropped') ORDER BY created_s")

    def unknown(self) -> list[Run]:
        """Open runs of decisions with a slot whose job is not in the table yet."""
        return records(
            Run,
            self._db,
            """SELECT r.* FROM runs r JOIN decisions d ON d.id = r.decision
               WHERE r.open = 1 AND d.slot IS NOT NULL AND d.mode = 'on' AND NOT EXISTS
                 (SELECT 1 FROM slots s WHERE s.decision = r.decision AND s.job_id = r.job_id)""",
        )


class Stretches(_ListOfRuns[StretchedRun]):
    """The table ``stretches``: runs on shares and their time limits."""

    RECORD = StretchedRun
    NAME = "stretches"

    def present(self, now_s: float) -> list[PresentRun]:
        """Runs that go on and have begun, and those that have ended since what they cost others was
        counted last, with what their decisions say; the first to begin first."""
        return records(
            PresentRun,
            self._db,
            """SELECT r.decision, r.job_id, r.restart, r.uid, r.state, r.gpu_uuids, r.tres,
                 r.start_s, r.end_s, r.open, d.smact, d.max_slowdown, d.mode, d.action,
                 d.exclusive_tres, d.fingerprint, d.options
               FROM runs r JOIN decisions d ON d.id = r.decision
               WHERE (r.open = 1 OR r.end_s > (
                 SELECT coalesce(min(s.at_s), ?) FROM stretches s JOIN runs o
                   ON o.decision = s.decision AND o.job_id = s.job_id AND o.restart = s.restart
                 WHERE o.open = 1 AND o.state IN ('RUNNING', 'CONFIGURING')))
                 AND r.start_s IS NOT NULL AND r.outcome IS NOT 'put-back'
                 AND r.state <> 'PENDING'
               ORDER BY r.start_s""",
            now_s,
        )

    def live(self) -> list[StretchedRun]:
        """Those of runs that go on."""
        return self._rows(
            """SELECT s.* FROM stretches s JOIN runs r ON r.decision = s.decision
                 AND r.job_id = s.job_id AND r.restart = s.restart WHERE r.open = 1"""
        )

    def before(self, decision: str, job_id: int, restart: int) -> StretchedRun | None:
        """The row of the last earlier run of a job."""
        where = "decision = ? AND job_id = ? AND restart < ? ORDER BY restart DESC LIMIT 1"
        return next(iter(self._where(where, decision, job_id, restart)), None)

    def to_restore(self) -> list[StretchedRun]:
        """Stretched runs of jobs of which a later run waits."""
        return self._rows(
            """SELECT s.* FROM stretches s JOIN runs r ON r.decision = s.decision
                 AND r.job_id = s.job_id AND r.restart > s.restart AND r.open = 1
                 AND r.state = 'PENDING'
               WHERE s.state = 'open' AND s.set_s IS NOT NULL"""
        )
