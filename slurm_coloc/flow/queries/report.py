# SPDX-License-Identifier: Apache-2.0
"""``coloc report``: what one run used, compared with its estimate, reservation and fence; or a
summary of many runs."""

import time
from dataclasses import asdict
from typing import Any

from slurm_coloc.adapters.store import Store
from slurm_coloc.core.decide import slowdown
from slurm_coloc.core.decide.slowdown import Beside
from slurm_coloc.core.gpu import usage
from slurm_coloc.core.records.runs import Run, StoredDecision, promised_mib, shared
from slurm_coloc.core.report.past import packed
from slurm_coloc.errors import UsageFault
from slurm_coloc.flow.queries import answers

Answer = dict[str, Any]

#: fields of each try that are shown
TRY = (
    *("restart", "tres", "outcome", "peak_mib", "evidence", "blame", "verdict", "retry"),
    *("start_s", "end_s", "share_mib", "culprit"),
)
MOST_BESIDE = 50  # neighbours that are shown
MOST_PAST = 20_000  # runs in a report of many: about 4 MB of JSON


def report(store: Store, uid: int | None, message: Answer, private: bool) -> Answer:
    """The newest run of a job that began, as ``uid`` may see it (None: anybody's). Raises
    UsageFault where there is no such job, or it has not begun."""
    found = answers.find(store, uid, message, private)
    decision = found.decision
    begun = [run for run in found.runs if run.start_s and run.outcome != "put-back"]
    if not begun:
        raise UsageFault(f"job {found.job_id}: has not begun, nothing to report", "unknown-job")
    run = begun[-1]
    if uid not in (None, run.uid):
        raise UsageFault(f"job {found.job_id}: belongs to another user", "unknown-job")
    start_s, end_s = run.start_s or 0.0, run.end_s or time.time()
    others = _beside(store, run, start_s, end_s)
    uses = run.used or []
    totals = usage.totals(uses)
    slower, how = _slower(store, run, decision, others, (start_s, end_s))
    answer = answers.explained(store, uid, found)
    shown = next(one for one in answer["runs"] if one["restart"] == run.restart)
    del shown["used"]
    drawn = usage.fullest(uses)
    return {
        "job_id": found.job_id,
        "decision": answer["decision"],
        "run": shown,
        "runs": len(found.runs),
        "tries": [{name: one[name] for name in TRY} for one in answer["runs"]],
        "reserved_mib": promised_mib(run.tres, decision) or None,
        "use": {**asdict(totals), "nodes": uses},
        "neighbours": [_neighbour(one, store, uid, private) for one in others[:MOST_BESIDE]],
        "slower": slower,
        "slower_how": how,
        "sooner_s": slowdown.sooner_s(start_s, others, time.time())
        if shared(run.tres, decision)
        else 0.0,
        "time_limit": _limit(store, run),
        "series": drawn["series"] if drawn else None,
        "events": [event for one in uses for event in one.get("events", ())],
    }


def _limit(store: Store, run: Run) -> Answer | None:
    """The change of the run's time limit (s); None where it was not stretched."""
    limit = store.stretches.of(*run.key)
    if limit is None or limit.set_s is None:
        return None
    return answers.picked(limit, "base_s", "set_s", "lost_s", "times")


def _beside(store: Store, run: Run, start_s: float, end_s: float) -> list[Beside]:
    """Other --coloc runs on the run's GPUs while it ran, oldest first."""
    mine = set(run.gpu_uuids or ())
    found = []
    for other in store.runs.beside(run, start_s, end_s):
        if not mine & set(other.gpu_uuids or ()):
            continue
        decision = store.decisions.of(other.decision)
        found.append(_on_gpu(other, decision.smact if decision else None))
    return sorted(found, key=lambda one: one.start_s)


def _on_gpu(run: Run, expected: float | None) -> Beside:
    """A run with what is known of its activity: measured alone, or as a part beside others."""
    measured = usage.totals(run.used or [])
    alone = measured.smact is not None and measured.smact_how == "alone"
    smact = measured.smact if alone else expected or measured.smact
    part = None if alone else measured.smact
    return Beside(run.job_id, run.start_s or 0.0, run.end_s, smact, part, alone)


def _slower(
    store: Store,
    run: Run,
    decision: StoredDecision,
    others: list[Beside],
    span: tuple[float, float],
) -> tuple[float | None, str]:
    """How many times slower than alone, and how that is known: ``measured``, ``predicted``, or ""
    where it is not. ``span``: start and end of the run."""
    start_s, end_s = span
    if not run.gpu_uuids:
        return None, ""  # nobody knows on which GPU it was, nor who was beside it
    if not others:
        return 1.0, "alone"
    if run.outcome == "completed":
        alone_s = store.runs.alone_s(run, decision.fingerprint, decision.options)
        factor = slowdown.measured(end_s - start_s, alone_s)
        if factor is not None:
            return factor, "measured"
    method = "mps" if run.method == "mps" else "streams"
    factor = slowdown.looking_back(_on_gpu(run, decision.smact), others, end_s, method)
    return factor, "predicted" if factor is not None else ""


def _neighbour(one: Beside, store: Store, uid: int | None, private: bool) -> Answer:
    """A neighbour as the user may see it: under PrivateData without its owner."""
    run = store.runs.of_job(one.job_id)[-1]
    names = {"array_job_id": run.array_job_id, "array_task": run.array_task}
    told = {"job_id": one.job_id, "start_s": one.start_s, "end_s": one.end_s, "smact": one.smact}
    if uid in (None, run.uid) or not private:
        return {**told, "uid": run.uid, **names}
    return {**told, "job_id": None, "uid": None, **dict.fromkeys(names)}


def summary(store: Store, uid: int | None, message: Answer) -> Answer:
    """Ended runs of the last ``days``, by user: counts, and sums of what was estimated, reserved
    and measured where all three are known."""
    days = message.get("days", 30)
    if not isinstance(days, int) or isinstance(days, bool) or not 1 <= days <= 3660:
        raise UsageFault("days: a number from 1 to 3660", "bad-request")
    users = store.queries.used_by_user(uid, time.time() - days * 86400.0)
    return {"days": days, "users": [answers.shown(one) for one in users]}


def mine(store: Store, uid: int, message: Answer) -> Answer:
    """A user's own jobs that colocd did not place, as agents measured them."""
    jobs = store.observed.of_user(uid, _since_s(message))
    return {"jobs": [answers.shown(one) for one in jobs]}


def _since_s(message: Answer) -> float:
    since_s = message.get("since_s", 0)
    if not isinstance(since_s, int | float) or isinstance(since_s, bool) or not since_s >= 0:
        raise UsageFault("since_s: seconds since 1970", "bad-request")
    return float(since_s)


def past(store: Store, uid: int | None, message: Answer) -> Answer:
    """Runs that ended after ``since_s`` (Unix seconds), for a report that the asker sums up;
    ``more``: older ones are left out; ``all``: they are everybody's."""
    since_s = _since_s(message)
    found = store.queries.past_runs(uid, since_s, MOST_PAST + 1)
    runs = found[:MOST_PAST]
    more = len(found) > MOST_PAST
    return {"since_s": since_s, "all": uid is None, "more": more, **packed(runs)}
