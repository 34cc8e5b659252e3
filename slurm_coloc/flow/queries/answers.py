# SPDX-License-Identifier: Apache-2.0
"""Answers from the history: jobs, history, status. Root and SlurmUser see all jobs, a user sees his
own. Of others' jobs he sees what squeue shows too, unless PrivateData has ``jobs``, and never what
comes from their logs or models."""

import time
from dataclasses import dataclass, fields
from typing import Any

from slurm_coloc.adapters.store import Store
from slurm_coloc.core.decide.decision import TEXTS, Reason
from slurm_coloc.core.gpu.telemetry.window import SPAN_S
from slurm_coloc.core.records.observed import ObservedJob
from slurm_coloc.core.records.queries import OBSERVED, Counts, UnfitNode, UserSum
from slurm_coloc.core.records.runs import Event, OfRun, Run, StoredDecision
from slurm_coloc.errors import UsageFault
from slurm_coloc.flow.queries import time_left

Answer = dict[str, Any]

MOST = 1000
TOO_LARGE = 2**32  # for an id of a job or a user
HOUR_S = 3600.0
DAY_S = 86400.0
DAYS, MOST_DAYS = 30, 3660  # of measured jobs
#: what replaces these fields of another user's run or decision
HIDDEN: Answer = dict.fromkeys(
    ("evidence", "fingerprint", "options", "detail", "learning", "used", "blame", "retry",
     "retry_cause", "retry_culprit", "culprit", "victims")
) | {"features": {}, "request": {}}  # fmt: skip


def running_tasks(store: Store) -> dict[int, Answer]:
    """What names an array's task, as in a run's own row, by the job ids of those that run."""
    found = store.runs.running_tasks()
    return {job: {"array_job_id": array, "array_task": task} for job, array, task in found}


def _limit(message: dict[str, Any]) -> int:
    limit = message.get("limit", 50)
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MOST:
        raise UsageFault(f"limit: a number from 1 to {MOST}", "bad-request")
    return limit


def picked(record: object, *names: str) -> Answer:
    """These fields of a record for an answer: flags are numbers, as in the database."""
    values = {name: getattr(record, name) for name in names}
    return {name: int(one) if isinstance(one, bool) else one for name, one in values.items()}


def shown(
    record: OfRun | StoredDecision | ObservedJob | UserSum | UnfitNode | Counts | Event,
) -> Answer:
    """All fields of a record."""
    return picked(record, *(one.name for one in fields(record)))


def _hidden(answer: Answer) -> Answer:
    """Another user's run or decision, without what his log, his model or his files hold."""
    return {name: HIDDEN.get(name, value) for name, value in answer.items()}


def _of_user(message: dict[str, Any]) -> int | None:
    user = message.get("user")
    if user is None:
        return None
    if not isinstance(user, int) or isinstance(user, bool) or not 0 <= user < TOO_LARGE:
        raise UsageFault("user: a uid", "bad-request")
    return user


def job_id_in(message: dict[str, Any]) -> int:
    """The job that a request names. Raises UsageFault for what is no job id of Slurm's, which has
    32 bits: SQLite raises OverflowError for more than 64."""
    job_id = message.get("job_id")
    if not isinstance(job_id, int) or isinstance(job_id, bool) or not 0 < job_id < TOO_LARGE:
        raise UsageFault("job_id: a number from 1 to 4294967295", "bad-request")
    return job_id


def jobs(store: Store, uid: int | None, message: dict[str, Any], private: bool) -> Answer:
    """Runs that have not ended, as ``uid`` may see them (None: all): his own, those of ``user``, or
    with ``all`` everybody's, ended ones too. ``private`` in the answer: others' are hidden."""
    everybody, user = message.get("all") is True, _of_user(message)
    others = user != uid if user is not None else everybody
    whom = user if user is not None else None if everybody or uid is None else uid
    if uid is not None and private and others:
        whom = uid
    runs = store.queries.recent_runs(
        whom, _limit(message), only_open=not everybody, open_first=everybody
    )
    found = [shown(run) if uid in (None, run.uid) else _hidden(shown(run)) for run in runs]
    time_left.by_past(found, uid, store.queries.lasted_s)
    _add_speeds(found, uid, store)
    hidden = uid is not None and private and others
    if hidden and user is not None:
        found = []
    return {"jobs": found, **({"private": True} if hidden else {})}


def _add_speeds(rows: list[Answer], uid: int | None, store: Store) -> None:
    """Set ``speed`` of the rows whose time ``uid`` is told of (None: all): 1 alone, predicted from
    the activities there; null where that is not known, as in the time that measuring takes."""
    known = {row.key: row.speed for row in store.stretches.live()}
    measured_s = time.time() - SPAN_S
    for row in rows:
        key = (row["decision"], row["job_id"], row["restart"])
        told = (row["start_s"] or measured_s) <= measured_s and time_left.may_know(row, uid)
        row["speed"] = known.get(key) if told else None


def history(store: Store, uid: int | None, message: dict[str, Any]) -> Answer:
    """The newest runs, and the decisions of observe mode; with ``since_s`` (Unix seconds) those
    that go on or ended since."""
    limit, since_s = _limit(message), message.get("since_s", 0.0)
    if not isinstance(since_s, int | float) or not 0 <= since_s < 2**53:  # NaN is neither
        raise UsageFault("since_s: Unix seconds", "bad-request")
    runs = store.queries.recent_runs(uid, limit, since_s=since_s)
    observed = store.queries.observed(uid, limit, since_s)
    return {
        "runs": [shown(run) for run in runs],
        "observed": [picked(one, *OBSERVED) for one in observed],
    }


def measured(store: Store, message: dict[str, Any]) -> Answer:
    """For ``coloc simulate --observed``: jobs that colocd did not place, of the last ``days``."""
    days = message.get("days", DAYS)
    if not isinstance(days, int | float) or isinstance(days, bool) or not 0 < days <= MOST_DAYS:
        raise UsageFault(f"days: a number up to {MOST_DAYS}", "bad-request")
    return {"jobs": [shown(one) for one in store.observed.since(time.time() - days * DAY_S)]}


@dataclass(frozen=True, slots=True)
class Found:
    """A job that the user may see, with the runs of its newest decision."""

    job_id: int
    decision: StoredDecision
    runs: list[Run]


def _named(store: Store, message: dict[str, Any]) -> tuple[int, str]:
    """The id of the job that a request names, and the name: an array's task by its number, which
    waits in the array's record until it has one of its own."""
    job_id, task = job_id_in(message), message.get("array_task")
    if task is None:
        return job_id, str(job_id)
    if not isinstance(task, int) or isinstance(task, bool) or not 0 <= task < 2**32:
        raise UsageFault("array_task: a number from 0", "bad-request")
    name = f"{job_id}_{task}"
    if runs := store.runs.of_task(job_id, task):
        return runs[-1].job_id, name
    waiting = any(run.open and run.array_task is None for run in store.runs.of_job(job_id))
    if not waiting:
        raise no_such_task(job_id, task)
    return job_id, name


def no_such_task(array_job_id: int, task: int) -> UsageFault:
    """That an array has no task of this number, or is nobody's that the user may see."""
    name = f"{array_job_id}_{task}"
    return UsageFault(f"job {name}: not a --coloc job that you may see", "unknown-job")


def find(store: Store, uid: int | None, message: dict[str, Any], private: bool) -> Found:
    """The job that a request names; raises UsageFault where there is none that the user may see."""
    job_id, name = _named(store, message)
    runs = [run for run in store.runs.of_job(job_id) if uid in (None, run.uid) or not private]
    # Ids start again after `slurmctld -c`: the newest decision counts.
    decision = store.decisions.of(runs[-1].decision) if runs else None
    if decision is None:
        raise UsageFault(f"job {name}: not a --coloc job that you may see", "unknown-job")
    return Found(job_id, decision, [run for run in runs if run.decision == decision.id])


def observed(store: Store, uid: int | None, job_id: int) -> Answer | None:
    """What observe mode decided of a job, as ``uid`` may see it (None: all); None for no such."""
    found = store.decisions.observed(job_id)
    if found is None or uid not in (None, found.uid):
        return None
    why = decided_why(found.reason, found.detail)
    return {"source": "observe", "job_id": job_id, "decision": {**shown(found), "why": why}}


def decided_why(reason: str, detail: str | None) -> str:
    """A decision's reason in words; the word itself where this release does not know it."""
    try:
        text = TEXTS[Reason(reason)]
    except ValueError:
        return reason
    return f"{text}: {detail}" if detail else text


def explained(store: Store, uid: int | None, found: Found) -> Answer:
    """The decision and the events of a job, as ``uid`` may see them."""
    decision = shown(found.decision)
    runs = [
        {**shown(run), "retry": _retry(store, run), **_culprits(store, run)} for run in found.runs
    ]
    events = [shown(one) for one in store.events(found.decision.id, found.job_id)]
    if uid not in (None, found.runs[-1].uid):
        # What follows the bracket is a line of the owner's log.
        events = [{**one, "text": one["text"].split(" (")[0]} for one in events]
        decision, runs = _hidden(decision), [_hidden(run) for run in runs]
    return {"job_id": found.job_id, "decision": decision, "runs": runs, "story": events}


def _culprits(store: Store, run: Run) -> Answer:
    """The neighbour that ended a run, null for none, and how many runs it ended itself."""
    named = store.culprits.of(*run.key)
    culprit = picked(named, "job_id", "held_mib", "promised_mib") if named else None
    return {"culprit": culprit, "victims": store.culprits.victims_of(run)}


def _retry(store: Store, run: Run) -> Answer | None:
    """What came after a run: the cause of its end, and what the next try asked for."""
    work = store.recoveries.of(*run.key)
    return picked(work, "cause", "way", "tres", "state", "front") if work else None


def counts(store: Store, trusted: bool) -> Answer:
    """The history in numbers; for root and SlurmUser (``trusted``) also the nodes whose GPUs were
    not fit for a job in the last hour."""
    unfit = [shown(one) for one in store.putbacks.since(time.time() - HOUR_S)]
    return {**({"unfit": unfit} if trusted else {}), **shown(store.queries.counts())}
