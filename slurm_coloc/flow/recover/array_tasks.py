# SPDX-License-Identifier: Apache-2.0
"""Changes the request of an array's waiting tasks by the first outcomes of its other tasks.

The plan (table siblings) is stored in the transaction that records the outcome. Each round changes
the waiting tasks that Slurm still shows with the old share, so colocd may stop at any point. Limits
on recoveries do not apply: it prevents failures.
"""

import time

import structlog

from slurm_coloc.adapters.store import Store
from slurm_coloc.core.decide.decide import shards_needed
from slurm_coloc.core.decide.decision import Action, Estimate, Sizing
from slurm_coloc.core.records.lists import ArrayPlan
from slurm_coloc.core.records.runs import Run, StoredDecision
from slurm_coloc.core.recover.array_tasks import Share, new_request, waiting
from slurm_coloc.core.recover.outcome import Outcome
from slurm_coloc.core.slurm.gres import count_of, on_slice
from slurm_coloc.core.slurm.job import JobView
from slurm_coloc.errors import SlurmError
from slurm_coloc.flow.cluster.context import Context
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


class Resizer:
    def __init__(self, context: Context) -> None:
        self._store, self._slurm, self._off = context.store, context.slurm, context.off

    async def round(self) -> None:
        """One round over every array with an open plan."""
        for row in self._store.arrays.open():
            if self._off():
                return
            await self._resize(row)

    async def _resize(self, row: ArrayPlan) -> None:
        views = await self._slurm.tasks_of(row.array_job_id)
        targets = waiting(views, row.decision, row.was, row.tres)
        if not targets:
            self._close(row, "done")
            return
        trouble = ""
        for target in targets[:RECORDS_A_ROUND]:
            try:
                await self._slurm.set_gres(target.handle, row.tres)
            except SlurmError as err:
                # Slurm refuses tasks that started meanwhile, and changes the others.
                trouble = err.message
        views = await self._slurm.tasks_of(row.array_job_id)
        left = sum(one.tasks for one in waiting(views, row.decision, row.was, row.tres))
        changed = sum(one.tasks for one in targets) - left
        self._store.arrays.change(
            row,
            tasks=row.tasks + max(changed, 0),
            tries=row.tries + (changed <= 0),
            updated_s=time.time(),
        )
        if not left:
            self._close(row, "done")
        elif row.tries >= MAX_TRIES:
            self._close(row, "failed", trouble)

    def _close(self, row: ArrayPlan, state: str, trouble: str = "") -> None:
        why = "a task ran out of GPU memory" if row.why == "oom-gpu" else "of the measured peaks"
        text = f"{row.tasks} waiting tasks of the array ask for {row.tres} now: {why}"
        if trouble:
            text += f"; given up for the others: {trouble}"
        with self._store.transaction():
            self._store.arrays.change(row, state=state, updated_s=time.time())
            if row.tasks or trouble:
                self._store.note(row.decision, None, "siblings", text)
        log.info(
            "siblings",
            array=row.array_job_id,
            decision=row.decision,
            tres=row.tres,
            tasks=row.tasks,
            result=state,
        )
