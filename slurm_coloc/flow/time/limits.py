# SPDX-License-Identifier: Apache-2.0
"""Stage watch, time limits: stretches a job's limit by the time that it lost beside others, and
says which GPUs are closed to newcomers because a job there has reached its slowdown limit.

Everything follows from the table ``stretches`` and from what Slurm shows, so colocd may stop at any
point: meanwhile no limit is stretched, and what was lost is counted afterwards from the runs. Slurm
is asked once when a run begins, and again before each change.
"""

import asyncio
import time
from collections.abc import Awaitable, Mapping
from typing import Literal

import structlog

from slurm_coloc.core.records.lists import StretchedRun
from slurm_coloc.core.records.runs import Key, OfRun, PresentRun, shared
from slurm_coloc.core.slurm.job import JobView, Terms
from slurm_coloc.core.time.slot import words
from slurm_coloc.core.time.stretch import MINUTE_S, Rules, Stretch, Timed, due_s, margin_s, stretch
from slurm_coloc.errors import SlurmError
from slurm_coloc.flow.cluster.context import Context
from slurm_coloc.flow.cluster.telemetry import STALE_S, GpuNow
from slurm_coloc.flow.recover.retry_limit import MAX_TRIES, counted, notify
from slurm_coloc.flow.time.ceilings import ceilings
from slurm_coloc.flow.time.neighbours import Neighbours, Pressed, activities, lost_s
from slurm_coloc.flow.time.pair_speeds import PairSpeeds
from slurm_coloc.flow.time.slowdown_limit import Protector

log = structlog.get_logger()

BEGUN = ("RUNNING", "CONFIGURING")
# A run's activity counts as measured alone when it has had its GPU to itself for so long (s);
# before, it is still starting.
SETTLES_S = 30.0
# Seconds between two writes of what was lost where nothing else changes; of a run alone on its GPU.
KEEP_S, KEEP_ALONE_S = 15.0, 300.0
RETRY_S = 20.0
ASKED = "asked for {} s"  # the note of an order until it is answered


def _followed(run: PresentRun) -> bool:
    return run.open and run.mode == "on" and run.state in BEGUN and shared(run.tres, run)


def _gpus_with(gpus: Mapping[str, GpuNow], job_id: int) -> tuple[str, ...]:
    """The GPUs on which an agent sees a job."""
    return tuple(
        uuid for uuid, gpu in gpus.items() if any(one.job_id == job_id for one in gpu.jobs)
    )


class Stretcher:
    """Follows the running jobs on shares."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._config, self._store, self._slurm = context.config, context.store, context.slurm
        self._live, self._off = context.live, context.off
        slowdown = context.config.slowdown
        self._rules = Rules(slowdown.max_factor, slowdown.margin_s)
        self._later: dict[Key, float] = {}  # when (Unix seconds) Slurm may be asked again
        self._protector = Protector(context)
        self._pairs = PairSpeeds(context)
        self.activities: Mapping[tuple[int, int], float] = {}  # as neighbours.activities has them
        self.interval_s = slowdown.interval_s

    @property
    def closed(self) -> frozenset[str]:
        return self._protector.closed

    async def round(self) -> None:
        """One round over every run on a share."""
        now = time.time()
        table = self._store.stretches
        runs, known = table.present(now), self._known()
        new = [run for run in runs if _followed(run) and run.key not in known]
        if [one for one in [await self._begin(run, now) for run in new] if one]:
            # Read again, with the neighbours since they began.
            runs, known = table.present(now), self._known()
        neighbours = self._neighbours(runs, known, now)
        since_s = {one: row.at_s for one, row in known.items()}
        # In a thread: with hundreds of GPUs it takes a good part of a second.
        pressed = await asyncio.to_thread(neighbours.pressed, since_s)
        for one in [run.key for run in runs if _followed(run)]:
            if one in known and one in pressed:
                await self._follow(known[one], pressed[one], now)
        self._protector.update(runs, pressed)
        self.activities = activities(pressed)
        self._pairs.see(neighbours)
        if not self._off():
            for row in self._store.stretches.to_restore():
                await self._trying(row, self._restore(row))
        self._later = {one: at for one, at in self._later.items() if at > now}

    # the inputs

    def _known(self) -> dict[Key, StretchedRun]:
        return {row.key: row for row in self._store.stretches.live()}

    def _neighbours(
        self, runs: list[PresentRun], rows: dict[Key, StretchedRun], now: float
    ) -> Neighbours:
        gpus: dict[str, GpuNow] = {}
        shape = self._context.shape()
        for node in shape.nodes if shape else ():
            beat = self._live.of(node.name)
            if beat and now - beat[0] < STALE_S:
                gpus |= {gpu.uuid: gpu for gpu in beat[1]}
        for run in runs:
            if run.gpu_uuids is None:  # colocd was away during its Prolog
                run.gpu_uuids = _gpus_with(gpus, run.job_id)
        return Neighbours(
            runs,
            gpus,
            {one: row.alone for one, row in rows.items() if row.alone is not None},
            now,
            self._config.sharing.method == "streams",
            self._config.sharing.users == "all",
            self._config.agent.window_s,
        )

    async def _begin(self, run: PresentRun, now: float) -> bool:
        """Add the row of a new run, with its limit; whether that was done."""
        if self._later.get(run.key, 0.0) > now or self._slots_first(run, run.restart):
            return False
        try:
            found = await self._shown(run)
        except SlurmError as err:
            log.warning("stretch", jobid=run.job_id, error=err.message)
            found = None
        if found is None:
            self._later[run.key] = now + RETRY_S
            return False
        terms, start_s = found[1], found[0].start_s or now
        before = self._store.stretches.before(*run.key)
        base_s, set_s = terms.limit_s, None
        if before is not None and before.state == "open" and before.set_s == terms.limit_s:
            base_s, set_s = before.base_s, before.set_s  # it began before its limit was restored
        row = StretchedRun(
            *run.key, uid=run.uid, base_s=base_s, set_s=set_s, at_s=start_s, start_s=start_s,
            created_s=now, updated_s=now,
        )  # fmt: skip
        self._store.stretches.add(row)
        if set_s is not None and not self._off():
            await self._trying(row, self._shorten(row, found[0], now))
        return True

    async def _shown(self, run: OfRun) -> tuple[JobView, Terms] | None:
        """A run that goes on, as Slurm shows it; None where it is over."""
        view = await self._slurm.job(run.job_id)
        if view is None or view.decision != run.decision:
            return None
        if view.restarts != run.restart or view.state not in BEGUN or view.completing:
            return None
        return view, await self._slurm.terms(view.handle)

    # one run

    async def _follow(self, row: StretchedRun, pressed: Pressed, now: float) -> None:
        """Count what the run lost, and stretch its limit where that is due."""
        lost = row.lost_s + lost_s(pressed, row.at_s, now)
        alone = row.alone
        if pressed.alone_now is not None and now - row.start_s >= SETTLES_S and not lost:
            alone = max(pressed.alone_now, alone or 0.0)
        changed = (len(pressed.others), alone) != (row.others, row.alone)
        if changed or now - row.updated_s >= (KEEP_S if pressed.beside else KEEP_ALONE_S):
            self._store.stretches.change(
                row, lost_s=lost, at_s=now, speed=pressed.speed, others=len(pressed.others),
                alone=alone, updated_s=now,
            )  # fmt: skip
        if row.state != "open" or row.base_s is None or not lost:
            return
        if self._config.slowdown.stretch == "off" or self._off():
            return
        if self._later.get(row.key, 0.0) <= now and self._due(row, lost, pressed, now):
            await self._trying(row, self._stretch(row, lost, pressed, now))

    def _due(self, row: StretchedRun, lost: float, pressed: Pressed, now: float) -> bool:
        """Whether the limit must be judged before the next round."""
        job = Timed(row.start_s, row.original_s, row.limit_s, lost, pressed.speed)
        return now >= due_s(job, self._rules) - self.interval_s

    async def _stretch(self, row: StretchedRun, lost: float, pressed: Pressed, now: float) -> None:
        found = await self._shown(row)
        if found is None:
            self._later[row.key] = now + RETRY_S
            return None
        view, terms = found
        limit_s = row.limit_s
        if terms.limit_s and row.note == ASKED.format(terms.limit_s):
            return await self._store_new(row, view, lost, terms.limit_s, "", now)
        if terms.limit_s != limit_s:
            return self._theirs(row, terms, now)
        start_s = view.start_s or row.start_s
        if start_s != row.start_s:  # Slurm counts anew from the end of the Prolog
            self._store.stretches.change(row, start_s=start_s)
            if not self._due(row, lost, pressed, now):
                return None
        job = Timed(start_s, row.original_s, limit_s, lost, pressed.speed)
        new = stretch(
            job, now, self._rules, await ceilings(self._context, view, terms, start_s, now)
        )
        if new.minutes is None:
            # Each check costs two commands: the next one comes when another minute may be due.
            self._later[row.key] = now + min(RETRY_S, margin_s(job.base_s, self._rules) / 3)
            return self._met(row, new, limit_s, now)
        # Stored first: a busy slurmctld carries out what it did not answer in time.
        set_s = new.minutes * MINUTE_S
        self._store.stretches.change(row, note=ASKED.format(set_s))
        await self._slurm.update(view.handle, TimeLimit=new.minutes)
        return await self._store_new(row, view, lost, set_s, new.why, now)

    # events

    def _note(self, row: StretchedRun, text: str) -> None:
        self._store.note(row.decision, row.job_id, "limit", text)
        log.info("stretch", jobid=row.job_id, decision=row.decision, what=text)

    async def _store_new(
        self, row: StretchedRun, view: JobView, lost: float, set_s: float, why: str, now: float
    ) -> None:
        """Store and tell the new limit that a run has."""
        self._store.stretches.change(
            row, set_s=set_s, times=row.times + 1, lost_s=lost, at_s=now, note=why, tries=0,
            updated_s=now,
        )  # fmt: skip
        text = (
            f"time limit {words(row.original_s)} is {words(row.limit_s)} now: it lost {words(lost)}"
            " beside others on its GPU"
        )
        if why:
            text += f"; {why} allows no more"
        self._note(row, text)
        if row.times == 1:  # once in its own log; `coloc explain` shows each change
            await notify(self._slurm, view, f"coloc: {text}")

    def _theirs(self, row: StretchedRun, terms: Terms, now: float) -> None:
        self._store.stretches.change(row, state="theirs", updated_s=now)
        now_is = "unlimited" if terms.limit_s is None else words(terms.limit_s)
        self._note(row, f"time limit {now_is}, set by its owner or an admin: left as it is")

    def _met(self, row: StretchedRun, new: Stretch, limit_s: float, now: float) -> None:
        """Note once that a ceiling keeps the limit where it is."""
        if new.why and row.note != new.why:
            self._store.stretches.change(row, note=new.why, updated_s=now)
            self._note(row, f"time limit stays {words(limit_s)}: {new.why} allows no more")

    # back to the original

    async def _restore(self, row: StretchedRun) -> None:
        """Give a job that was put back its original limit. Slurm keeps the stretched one through a
        requeue (tried on 22.05 and 24.11)."""
        view = await self._slurm.job(row.job_id)
        if view is None or view.decision != row.decision:
            return self._closed(row, "gone")
        if view.state != "PENDING" or view.completing:
            return None
        if self._slots_first(row, view.restarts):
            return None
        terms = await self._slurm.terms(view.handle)
        if terms.limit_s == row.set_s:
            await self._slurm.update(view.handle, TimeLimit=round(row.original_s / MINUTE_S))
            self._note(row, f"time limit {words(row.original_s)} again: it starts anew")
        return self._closed(row, "restored")

    def _slots_first(self, run: OfRun, restart: int) -> bool:
        """Whether a time slot of the job has ended and flow/time/slots has not yet set the limit of
        its next run: until then its limit must not be used."""
        slots = self._store.slots.of(run.decision, run.job_id)
        if slots is None or not slots.live:
            return False
        return slots.restart < restart or not slots.placed

    async def _shorten(self, row: StretchedRun, view: JobView, now: float) -> None:
        """Give a run that has begun already its original limit, unless that is about to end it."""
        if now - (view.start_s or now) + margin_s(row.original_s, self._rules) < row.original_s:
            await self._slurm.update(view.handle, TimeLimit=round(row.original_s / MINUTE_S))
            self._note(row, f"time limit {words(row.original_s)} again: it starts anew")
            self._store.stretches.change(row, set_s=None, updated_s=now)
        before = self._store.stretches.before(*row.key)
        if before is not None:
            self._closed(before, "restored")

    def _closed(self, row: StretchedRun, state: Literal["restored", "gone", "failed"]) -> None:
        self._store.stretches.change(row, state=state, updated_s=time.time())

    async def _trying(self, row: StretchedRun, what: Awaitable[None]) -> None:
        """Run a step; after too many refusals of Slurm the limit is left as it is."""
        try:
            await what
        except SlurmError as err:
            self._later[row.key] = time.time() + RETRY_S
            if counted("stretch", self._store.stretches, row, err) >= MAX_TRIES:
                self._closed(row, "failed")
                self._note(row, f"time limit left as it is: {err.message}")
