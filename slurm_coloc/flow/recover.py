# SPDX-License-Identifier: Apache-2.0
"""Stage recover: put a job that ran out of GPU memory back, on a whole GPU, at raised priority.

The work list is durable. Before each step the job is looked at again, and the step follows from
what is seen, so colocd may die at any line and go on later.
"""

import time
from collections.abc import Callable

import structlog

from slurm_coloc.adapters.commands import SlurmCommands
from slurm_coloc.adapters.store import Row, Store
from slurm_coloc.config import Config, RecoveryConfig
from slurm_coloc.core.comment import decision_in
from slurm_coloc.core.job import JobView
from slurm_coloc.core.recovery import Goal, Step, next_step, raised_priority
from slurm_coloc.errors import SlurmError

log = structlog.get_logger()

# A step that Slurm refuses is tried again at every round; after so many the job is left as it is.
MAX_TRIES = 40
# A requeued job would wait two minutes. It may not start at once either: a start in the second of
# its last end meets a slurmd that still holds the old run's credential for revoked, and the job
# fails ("Job credential revoked", seen on 22.05).
START_AFTER_S = 3
# One round walks a job through all of its steps; more than that means that nothing changes.
STEPS_A_ROUND = 8


def raising(recovery: RecoveryConfig, view: JobView) -> dict[str, str | int]:
    """Fields of ``scontrol update`` that prefer the requeued job."""
    if recovery.raise_by == "priority":
        return {"Priority": raised_priority(view.priority, recovery.priority)}
    if recovery.raise_by == "nice":
        return {"Nice": recovery.nice}
    if recovery.raise_by == "qos" and recovery.qos:
        return {"QOS": recovery.qos}
    return {}


class Recoverer:
    """Works through the list of planned recoveries."""

    def __init__(
        self,
        config: Config,
        store: Store,
        slurm: SlurmCommands,
        off: Callable[[], bool],
        see: Callable[[JobView], None],
    ) -> None:
        """``see``: opens the run of a job that is in the queue again, so that it is followed."""
        self._recovery = config.recovery
        self._store = store
        self._slurm = slurm
        self._off = off
        self._see = see

    async def round(self) -> None:
        """One try at every open recovery."""
        for work in self._store.open_work():
            try:
                await self._advance(work)
            except SlurmError as err:
                self._failed(work, err)

    async def _advance(self, work: Row) -> None:
        for _ in range(STEPS_A_ROUND):
            view = await self._slurm.job(work["job_id"])
            if view is None or decision_in(view.admin_comment) != work["decision"]:
                self._close(work, "lost", "slurmctld no longer knows the job")
                return
            step = next_step(view, Goal(work["restart"], work["tres"], bool(work["raised"])))
            if step is Step.WAIT or (step is Step.REQUEUE_HOLD and self._off()):
                # Switched off: nothing new is begun, but a job that we hold is let go.
                return
            if step is Step.DONE:
                self._close(work, "done", "requeued on a whole GPU")
                self._see(view)
                return
            if step is Step.LOST:
                self._close(work, "lost", f"the job is {view.state}: somebody else acted on it")
                return
            await self._do(step, work, view)

    async def _do(self, step: Step, work: Row, view: JobView) -> None:
        job_id, text = work["job_id"], str(step)
        if step is Step.REQUEUE_HOLD:
            await self._slurm.requeue_hold(view.handle)
        elif step is Step.SET_GRES:
            await self._slurm.set_gres(view.handle, work["tres"])
        elif step is Step.RELEASE:
            await self._slurm.release(view.handle)
        elif step is Step.RAISE:
            # In one update: a job that starts between two would refuse the second.
            raised = raising(self._recovery, view)
            await self._slurm.update(view.handle, **raised, StartTime=f"now+{START_AFTER_S}")
            text += "".join(f" {name}={value}" for name, value in raised.items())
            work["raised"] = 1
            self._store.change_work(work, raised=1)
        log.info("recover", jobid=job_id, decision=work["decision"], step=str(step))
        self._store.note(time.time(), work["decision"], job_id, "recover", text)

    def _failed(self, work: Row, err: SlurmError) -> None:
        # A slurmctld that is away is waited for as long as it takes; a refusal is counted.
        away = err.code == "slurm-timeout" or "Unable to contact" in err.message
        tries = work["tries"] if away else work["tries"] + 1
        log.warning("recover", jobid=work["job_id"], error=err.message, tries=tries)
        self._store.change_work(work, tries=tries, note=err.message, updated_s=time.time())
        if tries >= MAX_TRIES:
            self._close(work, "failed", f"given up: {err.message}")

    def _close(self, work: Row, state: str, text: str) -> None:
        with self._store.transaction():
            self._store.change_work(work, state=state, note=text, updated_s=time.time())
            self._store.note(time.time(), work["decision"], work["job_id"], "recover", text)
        log.info("recover", jobid=work["job_id"], decision=work["decision"], result=state)
