# SPDX-License-Identifier: Apache-2.0
"""``coloc explain``: the decision, the job in Slurm now, what it waits for, what comes next."""

import asyncio
import time
from dataclasses import asdict, dataclass
from typing import Any

from slurm_coloc.adapters.slurm import SlurmClient
from slurm_coloc.adapters.store import Store
from slurm_coloc.config import Config
from slurm_coloc.core.peer import Peer
from slurm_coloc.core.records.runs import Run, StoredDecision, shards_of, shared
from slurm_coloc.core.slurm.binding import binding, binding_text
from slurm_coloc.core.slurm.gres import called
from slurm_coloc.core.slurm.job import JobView
from slurm_coloc.core.slurm.pending import pending_text, resources_may_bind
from slurm_coloc.core.time.slot import slot_from
from slurm_coloc.errors import ColocError, SlurmError
from slurm_coloc.flow.queries import answers
from slurm_coloc.flow.queries.site import Site

Answer = dict[str, Any]

LIMITS_S = 3.0  # for the main process' answer
TELLS_S = 30.0  # the Prolog of a run that has just begun may take so long until it tells

#: fields of each run's time limit that are shown
STRETCHED = ("restart", "base_s", "set_s", "lost_s", "speed", "others", "times", "state", "note")

#: fields of a job's time slots that are shown
SLOTTED = ("state", "ended", "used_s", "signalled_s", "behind_s")


@dataclass(frozen=True, slots=True)
class _Stored:
    """What the history has of a job: the answer so far, and what the rest of it follows from."""

    answer: Answer
    decision: StoredDecision
    run: Run
    recovering: str  # the request of a recovery under way; "": there is none
    recovered: int


def _stored(store: Store, uid: int | None, message: Answer, private: bool) -> _Stored:
    found = answers.find(store, uid, message, private)
    decision, run = found.decision, found.runs[-1]
    answer = answers.explained(store, uid, found)
    answer["decision"]["why"] = answers.decided_why(decision.reason, answer["decision"]["detail"])
    limits = store.stretches.of_job(decision.id, found.job_id)
    answer["time_limits"] = [answers.picked(one, *STRETCHED) for one in limits]
    lost_s = sum(one.lost_s for one in limits if one.restart == run.restart)
    answer["slots"] = _slots(store, decision, run, lost_s)
    work = [one for one in store.recoveries.open() if one.job_id == found.job_id]
    recovered = store.recoveries.tally(run.job_id, run.decision, run.uid, time.time())[0]
    return _Stored(answer, decision, run, work[0].tres if work else "", recovered)


def _slots(store: Store, decision: StoredDecision, run: Run, lost_s: float) -> Answer | None:
    """The slots of a job that has some, and when its present run gets the signal: None where its
    time limit ends it. ``lost_s``: what the run lost beside others, which its limit gives back."""
    row = store.slots.of(decision.id, run.job_id)
    if decision.slot is None or row is None:
        return None
    slot = slot_from(decision.slot)
    left_s = None if row.total_s is None else row.total_s - row.used_s
    ends = left_s is not None and left_s + lost_s <= slot.length_s
    due = run.open and run.start_s is not None and row.state == "open" and not ends
    return {
        "length_s": slot.length_s,
        "signal": slot.signal,
        "signal_at_s": (run.start_s or 0.0) + slot.length_s - slot.warn_s if due else None,
        "left_s": left_s,
        **answers.picked(row, *SLOTTED),
    }


async def explain(site: Site, peer: Peer, message: Answer) -> Answer:
    """All of one job. Without Slurm ``live`` is null and ``slurm_error`` says why. Raises
    UsageFault where ``peer`` may see no such job."""
    stored = await site.read(_stored, site.limited_to(peer), message, site.private)
    view, trouble, live = None, None, None
    bound = None
    try:
        await _require_task(site.slurm, message, stored.run)
        view = await site.slurm.job(stored.answer["job_id"])
        if view is not None and view.decision != stored.decision.id:
            view = None  # ids started again: this is another job
        if view is not None:
            live, bound = await _live(site.slurm, view)
            live["limits"] = await _limits(site, view)
    except SlurmError as err:
        trouble = err.message
    return {
        **stored.answer,
        "live": live,
        "slurm_error": trouble,
        "now": present(stored.decision, stored.run, view),
        "binding": bound,
        "setup": setup_text(stored.run, stored.decision, view),
        "next": f"colocd is putting it back into the queue: {stored.recovering}"
        if stored.recovering
        else next_text(site.config, stored.decision, stored.run, view, stored.recovered),
    }


def present(decision: StoredDecision, run: Run, view: JobView | None) -> Answer:
    """What the job asks for now: its request, whether that is a share, and of how many shards of
    each GPU. ``changed``: it is another one than was decided, by a recovery, its owner or an
    admin."""
    tres = (view.tres if view else run.tres) or ""
    on_share = shared(tres, decision)
    shards = shards_of(tres, decision) if on_share else 0
    known = bool(tres) and decision.action == "collocate"
    changed = known and (not on_share or shards != decision.shards)
    return {"tres": tres, "shared": on_share, "shards": shards, "changed": changed}


def setup_text(run: Run, decision: StoredDecision, view: JobView | None) -> str:
    """That the node of a share said nothing at its start; "" where it did, or may still."""
    began_s = run.start_s if run.node and run.state != "PENDING" else None
    if not began_s or run.gpu_uuids is not None or not shared(run.tres or "", decision):
        return ""
    if view is not None and view.state == "RUNNING" and began_s > time.time() - TELLS_S:
        return ""
    return (
        f"{run.node} told colocd nothing at the start of this run: unless colocd was away then, it"
        " ran without slurm-coloc's setup there, neither fenced nor measured"
    )


async def _require_task(slurm: SlurmClient, message: Answer, run: Run) -> None:
    """Where a task of an array is asked for that waits in the array's record: that Slurm has a task
    of this number; raises UsageFault."""
    task = message.get("array_task")
    if task is None or run.array_task is not None:
        return
    tasks = {view.array_task for view in await slurm.tasks_of(run.job_id)}
    if tasks and str(task) not in tasks:
        raise answers.no_such_task(run.job_id, task)


async def _limits(site: Site, view: JobView) -> list[str]:
    """The limits that may cause the reason for which a job waits, as the main process last read
    them; none where it does not answer."""
    if view.state != "PENDING":
        return []
    fields = {name: getattr(view, name) for name in ("uid", "account", "qos", "partition")}
    try:
        found = await site.main.call("limits", LIMITS_S, reason=view.reason, **fields)
    except ColocError:
        return []
    return [str(line) for line in found["limits"]]


async def _live(slurm: SlurmClient, view: JobView) -> tuple[Answer, Answer | None]:
    live: Answer = {
        "state": "COMPLETING" if view.completing else view.state,
        "reason": view.reason,
        "reason_text": pending_text(view.reason) if view.state == "PENDING" else "",
        "restarts": view.restarts,
        "priority": view.priority,
        "tres": view.tres,
        "nodes": view.nodes,
        "placement": "",
        "partition": view.partition,
        "expected_start_s": view.start_s if view.state == "PENDING" else None,
    }
    if view.state == "RUNNING":
        live["placement"] = await slurm.placement(view.handle)
    if view.state != "PENDING" or not resources_may_bind(view.reason):
        return live, None
    need, nodes = await asyncio.gather(slurm.need(view.job_id), slurm.usage())
    if need is None:
        return live, None
    found = binding(need, tuple(view.partition.split(",")), nodes, view.uid)
    bound = {**asdict(found), "text": binding_text(found), "need": asdict(need)}
    # Before 24.11 Slurm shows no use per GPU: the answer assumes the best case.
    bound["per_gpu_known"] = all(node.spread for node in nodes if node.gpus)
    return live, bound


def next_text(
    config: Config, decision: StoredDecision, run: Run, view: JobView | None, recovered: int
) -> str:
    """What happens next, in one sentence. ``recovered``: recoveries of this job so far."""
    if view is None or view.ended:
        if run.outcome is None:
            return "colocd closes it at its next check of Slurm"
        return "nothing: it has ended"
    starts = "" if view.state == "RUNNING" else "it starts when Slurm finds room; "
    if not shared(view.tres, decision):  # of Slurm, not of the run: a requeue may have changed it
        return f"{starts}it has a whole GPU and is not put back by colocd"
    if not decision.may_requeue:
        why = "it is no batch job, or --no-requeue was given"
        return f"{starts}after a GPU out-of-memory it stays ended: {why}"
    left = config.recovery.max_per_job - recovered
    if not config.recovery.enabled or left <= 0:
        return f"{starts}after a GPU out-of-memory it stays ended: recovery is off or used up"
    raised = {
        "priority": " at raised priority",
        "nice": " with a better nice value",
        "qos": " in the recovery QOS",
        "none": "",
    }[config.recovery.raise_by]
    tres = decision.exclusive_tres
    what = f"on {called(tres)} ({tres})"
    if left > 1 and recovered < config.recovery.steps:
        what = f"with more memory, then {what}"
    return f"{starts}after a GPU out-of-memory it is requeued {what}{raised}"
