# SPDX-License-Identifier: Apache-2.0
"""Changes the request of an array's waiting tasks by the first outcomes of its other tasks.

The plan (table siblings) is stored in the transaction that records the outcome. Each round changes
the waiting tasks that Slurm still shows with the old share, so colocd may stop at any point. Limits
on recoveries do not apply: it prevents failures.
"""

import time
from collections.abc import Callable

import structlog

from slurm_coloc.adapters.store import Store
from slurm_coloc.core.decide.decide import shards_needed
from slurm_coloc.core.decide.decision import Action, Estimate, Sizing
from slurm_coloc.core.records.lists import ArrayPlan
from slurm_coloc.core.records.runs import Run, StoredDecision
from slurm_coloc.core.recover.array_tasks import Share, new_request, waiting
from slurm_coloc.core.recover.outcome import Outcome
from slurm_coloc.core.slurm.cluster import ClusterShape
from slurm_coloc.core.slurm.gres import count_of, on_slice, without_pin
from slurm_coloc.core.slurm.job import JobView
from slurm_coloc.errors import SlurmError
from slurm_coloc.flow.cluster.context import Context
from slurm_coloc.flow.place.changes import newest_shards, shards_in, unpinned_text
from slurm_coloc.flow.recover.retry_limit import MAX_TRIES

log = structlog.get_logger()

# The untouched tasks of an array are one record and one update; tasks changed singly are a record
# each. So many records a round leave slurmctld time for other work.
RECORDS_A_ROUND = 20


def plan(
    store: Store,
    run: Run,
    decision: StoredDecision,
    view: JobView | None,
    outcome: Outcome,
    sizing: Sizing,
    grown: str = "",
    *,
    min_run_s: float,
) -> None:
    """Plan another request for the tasks that wait, where the rule gives one; within the
    transaction that closes ``run``. ``grown``: the request of its own next try;
    ``min_run_s``: what a run must have lasted to make the others' share smaller."""
    if (
        view is None
        or not view.array_job_id
        or not view.array_task
        or decision.action != Action.COLLOCATE
    ):
        return
    was = run.tres or ""
    shards = count_of(was, "shard") or 0
    if not shards and not _to_whole(was, decision.exclusive_tres):
        return
    per_gpu = decision.shards_per_gpu
    # without its memory: what the GPU's other limits require
    least = shards_needed(Estimate("", 0, 0, decision.smact), per_gpu, sizing)
    share = Share(was, decision.exclusive_tres, shards, decision.shard_mib, per_gpu, least)
    # Tasks with different summaries say nothing about each other (flow/submit/estimate).
    alike = decision.learning is not None
    tres = new_request(
        outcome,
        share,
        store.runs.completed_peaks_mib(run.decision),
        lasting_mib=store.runs.completed_peaks_mib(run.decision, min_run_s),
        alike=alike,
        grown=grown,
    )
    if tres is None:
        return
    store.arrays.plan(
        ArrayPlan(
            decision=run.decision,
            array_job_id=view.array_job_id,
            uid=run.uid,
            was=was,
            tres=tres,
            why=str(outcome),
            updated_s=time.time(),
        )
    )


def _to_whole(was: str, goal: str) -> bool:
    """Whether tasks that wait for a MIG device can be given a whole GPU. On 22.05, where the goal
    is another device, they could start with none between two updates (core/decide/slices.more)."""
    return on_slice(was) and bool(goal) and not on_slice(goal)


def unpinned(tres: str, shape: ClusterShape | None) -> str:
    """The request without the pin of its last run."""
    pins = {kind for node in shape.nodes for kind in node.devices} if shape else set()
    return without_pin(tres, pins)


class Resizer:
    def __init__(self, context: Context, noted: Callable[[], None]) -> None:
        """``noted``: called when the shares of tasks that ask for whole GPUs were noted anew."""
        self._store, self._slurm, self._off = context.store, context.slurm, context.off
        self._shape, self._noted = context.shape, noted

    async def round(self) -> None:
        """One round over every array with an open plan."""
        for row in self._store.arrays.open():
            if self._off():
                return
            await self._resize(row)

    async def _resize(self, row: ArrayPlan) -> None:
        goal, told = self._goal(row)
        views = await self._slurm.tasks_of(row.array_job_id)
        targets = waiting(views, row.decision, row.was, goal)
        if not targets:
            self._close(row, "done", goal, told)
            return
        trouble = ""
        for target in targets[:RECORDS_A_ROUND]:
            try:
                await self._slurm.set_gres(target.handle, goal)
            except SlurmError as err:
                # Slurm refuses tasks that started meanwhile, and changes the others.
                trouble = err.message
        views = await self._slurm.tasks_of(row.array_job_id)
        left = sum(one.tasks for one in waiting(views, row.decision, row.was, goal))
        changed = sum(one.tasks for one in targets) - left
        self._store.arrays.change(
            row,
            tasks=row.tasks + max(changed, 0),
            tries=row.tries + (changed <= 0),
            updated_s=time.time(),
        )
        if not left:
            self._close(row, "done", goal, told)
        elif row.tries >= MAX_TRIES:
            self._close(row, "failed", goal, told, trouble)

    def _goal(self, row: ArrayPlan) -> tuple[str, str]:
        """What the waiting tasks are to ask for, on any GPU. Where each asks for a whole GPU until
        it is pinned, that; and the text that tells the next pin's share, noted before anything is
        changed: a round of placing may come in between."""
        tres = unpinned(row.tres, self._shape())
        decision = self._store.decisions.of(row.decision)
        events = self._store.events(row.decision, row.array_job_id)
        if decision is None or not any(shards_in(one.text) for one in events):
            return tres, ""
        shards = count_of(tres, "shard") or 0
        told = unpinned_text(shards, _why(row)) if shards else _request_text("the", tres, row)
        if newest_shards(events) != shards:
            self._store.note(row.decision, None, "siblings", told)
            self._noted()
        return decision.exclusive_tres, told

    def _close(self, row: ArrayPlan, state: str, goal: str, told: str, trouble: str = "") -> None:
        text = told or _request_text(str(row.tasks), goal, row)
        if trouble:
            text += f"; given up for the others: {trouble}"
        with self._store.transaction():
            self._store.arrays.change(row, state=state, updated_s=time.time())
            if trouble or (row.tasks and not told):
                self._store.note(row.decision, None, "siblings", text)
        log.info(
            "siblings",
            array=row.array_job_id,
            decision=row.decision,
            tres=goal,
            tasks=row.tasks,
            result=state,
        )


def _why(row: ArrayPlan) -> str:
    return "a task ran out of GPU memory" if row.why == "oom-gpu" else "of the measured peaks"


def _request_text(tasks: str, tres: str, row: ArrayPlan) -> str:
    return f"{tasks} waiting tasks of the array ask for {tres} now: {_why(row)}"
