# SPDX-License-Identifier: Apache-2.0
"""colocd's loops: each has its own pause, and a fault ends none of them."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import structlog

from slurm_coloc.core.slurm.qos_limits import NO_LIMITS
from slurm_coloc.daemon.ends import Ends
from slurm_coloc.daemon.parts import Parts
from slurm_coloc.errors import ColocError, SlurmError
from slurm_coloc.flow.cluster.role import Part
from slurm_coloc.flow.nodes import epilog, observed

log = structlog.get_logger()

# Seconds for which a start waits for slurmctld; the pause until the cluster is known.
FIRST_SHAPE_S = 2.0
RECOVER_S = 1.0  # between two rounds while recoveries are open
SLOTS_S = 1.0  # between two rounds over the jobs with time slots: two questions to the database
IDLE_S = 10.0  # between two rounds over the idle jobs, of which agents tell every 20 s
SUMMARIES_S = 10.0  # between two looks for jobs that have ended, where summaries are wanted
DAY_S = 86400.0


class Loops:
    def __init__(self, parts: Parts, ends: Ends) -> None:
        self._parts = parts
        self._ends = ends
        self._active = asyncio.Event()  # this colocd is the active one, or was

    def refreshing(self) -> asyncio.Task[None]:
        """The loop that reads the cluster's shape; a start waits for its first round only."""
        return asyncio.create_task(self._every(self.refresh_pause, self._refresh))

    def others(self) -> list[asyncio.Task[None]]:
        """All loops that begin after the start."""
        every = (
            (lambda: self._parts.role.pause_s, self._refresh_role),
            (self.refresh_pause, self._read_limits),
            (lambda: DAY_S, self._forget),
        )
        acting = (
            (self._reconcile_pause, self._reconcile),
            (lambda: RECOVER_S, self._recover),
            (lambda: self._parts.placement.interval_s, self._place),
            (lambda: SLOTS_S, self._slots),
            (lambda: self._parts.stretcher.interval_s, self._stretch),
            (lambda: IDLE_S, self._idle),
            (lambda: SUMMARIES_S, self._summaries),
            (lambda: observed.ASK_S, self._name_observed),
        )
        rounds = [self._every(pause, what) for pause, what in every]
        rounds += [self._every(pause, what, acts=True) for pause, what in acting]
        return [asyncio.create_task(one) for one in rounds]

    async def _every(
        self,
        pause: Callable[[], float],
        what: Callable[[], Awaitable[None]],
        *,
        acts: bool = False,
    ) -> None:
        """Run ``what`` for ever; a fault is logged and the next round tries again. ``acts``: only
        while this colocd is the active one, which Slurm must have told."""
        name = getattr(what, "__name__", "loop").strip("_")
        if acts:
            await self._active.wait()
        while True:
            try:
                if not acts or not self._parts.standby:
                    await what()
            except ColocError as err:
                log.warning(name, error=err.message)
            except Exception:
                log.exception(name)
            await asyncio.sleep(pause())

    async def _refresh(self) -> None:
        await self._parts.cluster.refresh()

    def refresh_pause(self) -> float:
        """Seconds to the next reading of the cluster."""
        refresh_s = self._parts.config.daemon.refresh_s
        return refresh_s if self._parts.cluster.shape else min(FIRST_SHAPE_S, refresh_s)

    async def _read_limits(self) -> None:
        """Read QOS and association limits; while slurmdbd does not answer the last ones hold."""
        parts = self._parts
        if parts.cluster.shape is None:
            return
        try:
            parts.limits = await parts.slurm.limits(parts.cluster.shape.name)
        except SlurmError as err:
            if err.code != "no-accounting":
                raise
            parts.limits = NO_LIMITS
        parts.limits_known = True

    async def _refresh_role(self) -> None:
        parts = self._parts
        before = parts.role.part
        await parts.role.refresh()
        if parts.role.part is not Part.ACTIVE:
            return
        self._active.set()
        if before is not Part.ACTIVE:
            if parts.cluster.shape is None:
                await self._refresh()
            await parts.watcher.see_all()
            self._ends.recovering.set()

    async def _reconcile(self) -> None:
        parts = self._parts
        for job_id in epilog.drain(parts.store, parts.config.hooks.spool_dir):
            log.info("spool", jobid=job_id)
            self._ends.poll(job_id)
        await parts.watcher.reconcile()
        self._ends.recovering.set()

    def _reconcile_pause(self) -> float:
        daemon = self._parts.config.daemon
        return daemon.reconcile_s if self._parts.store.decisions.unbound() else daemon.idle_s

    async def _forget(self) -> None:
        before_s = time.time() - self._parts.config.daemon.history_days * DAY_S
        while self._parts.store.forget_history(before_s):
            await asyncio.sleep(0.1)

    async def _name_observed(self) -> None:
        await observed.name_them(self._parts.store, self._parts.slurm)

    async def _place(self) -> None:
        await self._parts.placement.round()

    async def _recover(self) -> None:
        parts, recovering = self._parts, self._ends.recovering
        due = parts.store.recoveries.open() or parts.store.recoveries.raised()
        if not (due or parts.store.arrays.open() or parts.store.putbacks.open()):
            recovering.clear()
            await recovering.wait()
        if not parts.standby:
            await parts.gate.round()
            await parts.recoverer.round()
            await parts.resizer.round()

    async def _slots(self) -> None:
        await self._parts.slots.round()

    async def _idle(self) -> None:
        await self._parts.idle.round()

    async def _summaries(self) -> None:
        await self._parts.summaries.round()

    async def _stretch(self) -> None:
        await self._parts.stretcher.round()
