# SPDX-License-Identifier: Apache-2.0
"""A trace under one policy: jobs arrive, wait, run at the speeds of their neighbours, and end.

Event by event, in one thread, from numbers alone: the same input gives the same output. When a
job's speed changes its end is pushed again and the older one is void (its version is older).
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count

from slurm_coloc.core.place.gpu_slot import INF, GpuSlot, PlaceRequest
from slurm_coloc.core.place.placing import Policy, Start
from slurm_coloc.errors import UsageFault
from slurm_coloc.sim.floor import Floor
from slurm_coloc.sim.knowledge import Knowledge
from slurm_coloc.sim.machine import Machine
from slurm_coloc.sim.outcome import Outcome, Piece, Record
from slurm_coloc.sim.places import Run
from slurm_coloc.sim.priority import Standing
from slurm_coloc.sim.setting import Setting
from slurm_coloc.sim.trace import TraceJob
from slurm_coloc.sim.waiting import Waiting

#: order of events of one moment: ends first, so that what they free is used
END, LIMIT, LAUNCH, MEMORY, ARRIVE, TICK = range(6)


class Simulation:
    """One trace under one policy. ``seed``: of what is learned of run times, where that errs.
    Raises UsageFault for a job that the machine cannot hold."""

    def __init__(
        self,
        jobs: Sequence[TraceJob],
        machine: Machine,
        policy: Policy,
        setting: Setting,
        request_of: Callable[[TraceJob], PlaceRequest],
        seed: str = "",
    ) -> None:
        self._records = {job.id: Record(job) for job in jobs}
        if len(self._records) != len(jobs):
            raise UsageFault("trace: a job id stands there twice")
        self._policy, self._setting = policy, setting
        self._floor = Floor(machine, setting, max((job.gpus for job in jobs), default=1))
        self._request_of = request_of
        self._waiting = Waiting(self._floor.slots, setting)
        self._knowledge = Knowledge(setting, seed, self._floor, self._waiting, self._records)
        self._standing = None if setting.priority is None else Standing(setting.priority)
        # (time, kind, serial, job, version): in one moment and kind, what was pushed first
        self._events: list[tuple[float, int, int, int, int]] = []
        self._serial = count()
        self._oom = self._timeouts = self._shared_timeouts = 0
        self._busy_until_s = -INF
        self._measured_s = float("nan")
        self._tick_s = INF
        self._pieces: list[Piece] = []
        self.now_s = 0.0
        self._floor.check(jobs)

    # ---- the loop --------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Play the trace to its end."""
        for job_id, record in self._records.items():
            self._push(record.job.submit_s, ARRIVE, job_id)
        events = self._events
        while events:
            self.now_s = events[0][0]
            while events and events[0][0] <= self.now_s:
                _, kind, _, job_id, version = heapq.heappop(events)
                self._handle(kind, job_id, version)
            self._schedule()
        if len(self._waiting):
            names = ", ".join(str(request.id) for request in self._waiting.first(5))
            raise UsageFault(
                f"trace: {len(self._waiting)} jobs fit nowhere under {self._policy.name}: {names}"
            )
        end_s = max((record.end_s or 0.0 for record in self._records.values()), default=0.0)
        return Outcome(
            list(self._records.values()),
            self._oom,
            self._timeouts,
            self._shared_timeouts,
            self._floor.joules(end_s),
            self._pieces,
            [place.history for place in self._floor.places] if self._setting.record else (),
        )

    def _push(self, when_s: float, kind: int, job_id: int = 0, version: int = 0) -> None:
        heapq.heappush(self._events, (when_s, kind, next(self._serial), job_id, version))

    def _handle(self, kind: int, job_id: int, version: int) -> None:
        if kind == ARRIVE:
            self._arrive(job_id)
            return
        if kind == TICK:
            # A tick that an earlier one has replaced is void, or ticks would multiply.
            if self.now_s >= self._tick_s:
                self._tick_s = INF
                self._waiting.reconsider()
            return
        run = self._floor.runs.get(job_id)
        if run is None:
            return
        if kind in (LAUNCH, MEMORY):
            if version == self._records[job_id].tries:
                self._memory(run) if kind == MEMORY else self._launch(run)
        elif version == run.version:
            self._end(run, timed_out=kind == LIMIT)

    def _arrive(self, job_id: int) -> None:
        record, setting = self._records[job_id], self._setting
        request, job = record.request, record.job
        if request is None:
            request = self._knowledge.with_peak(job, self._request_of(job))
            request = record.request = replace(
                request,
                cpus=job.cpus,
                host_mib=job.host_mib,
                share=request.share and self._floor.pool_holds(request),
                max_slowdown=setting.slowdown_limit(request.max_slowdown, job.limit_s),
            )
        request = self._knowledge.with_run_time(job, request, self.now_s)
        pace = setting.pace
        if pace.asleep and not len(self._waiting):
            self._busy_until_s = max(self._busy_until_s, self.now_s + pace.idle_s)
        priority = 0.0 if self._standing is None else self._standing.priority(request, self.now_s)
        self._waiting.add(request, record.tries > 0 and setting.recovery.first, priority)

    # ---- starting --------------------------------------------------------------------------

    def _schedule(self) -> None:
        waiting, setting = self._waiting, self._setting
        if self._standing is not None and len(waiting) and self._standing.due(self.now_s):
            standing, now_s = self._standing, self.now_s
            standing.charge(self._floor.runs.values(), now_s)
            waiting.rank(lambda request: standing.priority(request, now_s))
        if setting.logs and len(waiting):
            self._knowledge.read_logs(self.now_s)
        again = False
        while len(waiting):
            if self.now_s < self._busy_until_s:
                self._wake(self._busy_until_s)
                return
            if setting.conditions.telemetry:
                self._measure()
            waiting.now_s = self.now_s
            start = self._policy.next(waiting)
            more = waiting.end_pass()
            if start is not None:
                self._start(start)
                again = False
            elif more and not again:
                again = True  # once: reservations of two sorts of jobs could change for ever
            else:
                self._wake_later()
                return

    def _wake_later(self) -> None:
        """Nothing starts now: when the scheduler tries again, unless something happens before."""
        pace = self._setting.pace
        if not (self._floor.runs or self._events):
            return  # nothing will ever change
        if pace.asleep:
            self._busy_until_s = self.now_s + pace.shared_s
            self._wake(self._busy_until_s)
        elif self._setting.conditions.telemetry:
            self._wake(self.now_s + pace.tick_s)

    def _wake(self, when_s: float) -> None:
        if when_s < self._tick_s:
            self._tick_s = when_s
            self._push(when_s, TICK)

    def _measure(self) -> None:
        """Let every slot show what the monitor measured at its last poll."""
        monitor = self._setting.monitor
        polled_s = self.now_s // monitor.refresh_s * monitor.refresh_s
        if polled_s == self._measured_s:
            return
        self._measured_s = polled_s
        self._floor.poll(polled_s)
        self._waiting.reconsider()

    def _start(self, start: Start) -> None:
        request, record, pace = start.request, self._records[start.request.id], self._setting.pace
        self._assert_legal(start)
        shared = any(slot.residents for slot in start.slots)
        self._busy_until_s = self.now_s + (pace.shared_s if shared else pace.idle_s)
        if record.start_s is None:
            record.start_s = self.now_s
        record.tries += 1
        self._waiting.remove(request, start.slots[-1].index)
        self._floor.start(request, record.job, start.slots, self.now_s)
        self._update(start.slots)
        works_s = self.now_s + self._setting.launch_s
        if not self._floor.runs[request.id].launched:
            self._push(works_s, LAUNCH, request.id, record.tries)
        self._push(works_s + self._setting.ramp_s, MEMORY, request.id, record.tries)

    def _assert_legal(self, start: Start) -> None:
        """A policy that answers nonsense must not make figures."""
        request, slots = start.request, start.slots
        wrong = len({slot.index for slot in slots}) != request.gpus
        wrong = wrong or request.id in self._floor.runs
        wrong = wrong or any(slot.residents and (slot.whole or not request.share) for slot in slots)
        if wrong:
            raise AssertionError(f"{self._policy.name}: job {request.id} cannot start there")

    def _update(self, slots: Sequence[GpuSlot]) -> None:
        """New ends of all jobs whose speed changed: by themselves, or by the time limit."""
        longest_s = self._setting.max_limit_s or INF
        for run in self._floor.update(slots, self.now_s):
            end_s = self.now_s + run.left_s / run.speed if run.speed else INF
            limit_s = self.now_s + run.limit_left_s / run.planned
            limit_s = min(limit_s, run.start_s + longest_s)
            if limit_s < end_s - 1e-6:
                self._push(limit_s, LIMIT, run.job.id, run.version)
            elif end_s < INF:
                self._push(end_s, END, run.job.id, run.version)

    # ---- ending ----------------------------------------------------------------------------

    def _leave(self, run: Run) -> None:
        self._floor.leave(run, self.now_s)
        for slot in run.slots:
            for place in self._floor.places[slot.index].bank.places:
                self._waiting.freed(place.slot)
        record = self._records[run.job.id]
        record.ran_s += self.now_s - run.start_s
        if self._standing is not None:
            self._standing.ended(run, self.now_s)
        self._update(run.slots)
        if self._setting.record:
            need_mib = run.request.need_mib if run.request.share else None
            self._pieces.extend(
                Piece(run.job.id, slot.index, run.start_s, self.now_s, need_mib)
                for slot in run.slots
            )

    def _end(self, run: Run, timed_out: bool) -> None:
        self._leave(run)
        record = self._records[run.job.id]
        record.end_s, record.last_s = self.now_s, self.now_s - run.start_s
        if not timed_out:
            self._knowledge.ended(run.job, self.now_s)
            return
        record.timed_out = True
        self._timeouts += 1
        alone_s = min(run.job.limit_s or INF, self._setting.max_limit_s or INF)
        self._shared_timeouts += run.job.run_s <= alone_s

    def _launch(self, run: Run) -> None:
        """A job begins to work, and its neighbours feel it."""
        run.launched = True
        self._update(run.slots)

    def _memory(self, run: Run) -> None:
        """A job's memory appears: it fits, or the newcomer runs out."""
        need, floor = run.request.need_mib, self._floor
        fenced = (
            self._setting.fence
            and run.request.share
            and need is not None
            and run.job.memory_mib > need
        )
        full = not floor.has_room(run)
        if full and (not run.request.share or need is None) and floor.alone(run):
            full = False  # larger than the GPU: the trace says that it ran, so let it
        if not fenced and not full:
            floor.appear(run, self.now_s)
            if self._setting.settle:
                for slot in run.slots:
                    self._waiting.freed(slot)
            return
        self._oom += 1
        record = self._records[run.job.id]
        record.oom += 1
        self._leave(run)
        rule, job = self._setting.recovery, run.job
        record.request = rule.next_request(
            run.request, job.memory_mib, record.oom, floor.pool_holds
        )
        self._push(self.now_s + rule.delay_s, ARRIVE, job.id)
