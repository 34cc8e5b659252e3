# SPDX-License-Identifier: Apache-2.0
"""The world of a simulation: jobs arrive, run at the speeds of their neighbours, and end.

Event by event, in one thread, from numbers alone: the same input gives the same output. A job's
speed changes only when a neighbour comes or goes; its next end is pushed again then and the older
one is void (its version tells).
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from slurm_coloc.core.placing import Ask, Policy, Resident, Seat, Start
from slurm_coloc.errors import UsageFault
from slurm_coloc.sim.forecast import Forecast
from slurm_coloc.sim.machine import Machine
from slurm_coloc.sim.outcome import Outcome, Piece, Record
from slurm_coloc.sim.power import Power, dram_activity
from slurm_coloc.sim.setting import Setting
from slurm_coloc.sim.telemetry import History
from slurm_coloc.sim.trace import TraceJob
from slurm_coloc.sim.waiting import Waiting

#: order of events of one moment: ends first, so that what they free is seen
END, LIMIT, MEMORY, ARRIVE, TICK = range(5)
TINY = 1e-6


@dataclass(slots=True, eq=False)
class Run:
    """A job on its GPUs. ``left_s``: seconds alone to go, as of ``since_s``. ``appeared_s``: when
    its memory showed."""

    job: TraceJob
    ask: Ask
    seats: tuple[Seat, ...]
    residents: tuple[Resident, ...]
    start_s: float
    left_s: float
    since_s: float
    speed: float = 1.0
    version: int = 0
    appeared_s: float = float("inf")


@dataclass(slots=True)
class Card:
    """One whole GPU and what it drew so far; a MIG instance is a part of one."""

    power: Power
    smact: float = 0.0
    drama: float = 0.0
    since_s: float = 0.0
    joules: float = 0.0

    def now(self, now_s: float, smact: float = 0.0, drama: float = 0.0) -> None:
        """From now on its SM and DRAM activities are so much more (ratios)."""
        self.joules += self.power.watts(self.smact, self.drama) * (now_s - self.since_s)
        self.since_s = now_s
        # Rounding must not leave a trace of activity on an idle GPU.
        self.smact = 0.0 if self.smact + smact < 1e-9 else self.smact + smact
        self.drama = max(0.0, self.drama + drama)


@dataclass(slots=True)
class Place:
    """What the world knows of a seat and a policy does not: the truth."""

    seat: Seat
    card: Card
    true_mib: int
    history: History
    runs: list[Run] = field(default_factory=list)
    used_mib: int = 0
    smact: float = 0.0
    drama: float = 0.0


class Simulation:
    """One trace under one policy."""

    def __init__(
        self,
        jobs: Sequence[TraceJob],
        machine: Machine,
        policy: Policy,
        setting: Setting,
        ask_of: Callable[[TraceJob], Ask],
    ) -> None:
        self._jobs: Mapping[int, TraceJob] = {job.id: job for job in jobs}
        if len(self._jobs) != len(jobs):
            raise UsageFault("trace: a job id stands there twice")
        self._policy, self._setting = policy, setting
        self._places = _places(machine, setting)
        self._ask_of = ask_of
        self._forecast = Forecast(setting.expect_runs)
        self._waiting = Waiting(
            [place.seat for place in self._places],
            setting.conditions,
            setting.interference,
            setting.depth,
        )
        self._events: list[tuple[float, int, int, int, int]] = []
        self._serial = count()
        # Never the same twice: a recovered job's former end must not end its new run.
        self._versions = count(1)
        self._runs: dict[int, Run] = {}
        self._records = {job.id: Record(job) for job in jobs}
        self._oom = self._timeouts = self._shared_timeouts = 0
        self._busy_until_s = float("-inf")
        self._measured_s = float("nan")
        self._tick_s = float("inf")
        self._pieces: list[Piece] = []
        self.now_s = 0.0

    # ---- the loop --------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Play the trace to its end."""
        for job in self._jobs.values():
            self._push(job.submit_s, ARRIVE, job.id)
        events = self._events
        while events:
            self.now_s = events[0][0]
            while events and events[0][0] <= self.now_s:
                _, kind, job_id, version, _ = heapq.heappop(events)
                self._handle(kind, job_id, version)
            self._schedule()
        if len(self._waiting):
            names = ", ".join(str(ask.id) for ask in self._waiting.first(5))
            raise UsageFault(f"trace: {len(self._waiting)} jobs fit nowhere: {names} ...")
        return Outcome(
            list(self._records.values()),
            self._oom,
            self._timeouts,
            self._shared_timeouts,
            self._energy(),
            self._pieces,
            [place.history for place in self._places] if self._setting.record else (),
        )

    def _push(self, when_s: float, kind: int, job_id: int = 0, version: int = 0) -> None:
        heapq.heappush(self._events, (when_s, kind, job_id, version, next(self._serial)))

    def _handle(self, kind: int, job_id: int, version: int) -> None:
        if kind == ARRIVE:
            self._arrive(job_id)
            return
        if kind == TICK:
            self._tick_s = float("inf")
            self._waiting.look_again()
            return
        run = self._runs.get(job_id)
        if run is None or (run.version != version and kind == END):
            return
        if kind != END and version != self._records[job_id].tries:
            return
        if kind == END:
            self._finish(run)
        elif kind == LIMIT:
            self._time_out(run)
        else:
            self._memory(run)

    def _arrive(self, job_id: int) -> None:
        record = self._records[job_id]
        ask = record.ask
        if ask is None:
            ask = record.ask = self._ask_of(self._jobs[job_id])
        ask = replace(ask, run_s=self._forecast.expect(self._jobs[job_id]))
        pace = self._setting.pace
        if pace.asleep and not len(self._waiting):
            self._busy_until_s = max(self._busy_until_s, self.now_s + pace.idle_s)
        self._waiting.add(ask, first=record.tries > 0 and self._setting.recovery.first)

    # ---- starting --------------------------------------------------------------------------

    def _schedule(self) -> None:
        waiting, setting = self._waiting, self._setting
        while len(waiting):
            if self.now_s < self._busy_until_s:
                self._wake(self._busy_until_s)
                return
            if setting.conditions.telemetry:
                self._measure()
            start = self._policy.next(waiting.view(self.now_s))
            if start is None:
                self._look_later()
                return
            self._start(start)

    def _look_later(self) -> None:
        """Nothing starts now: when the scheduler looks again unless something happens before."""
        pace = self._setting.pace
        if not (self._runs or self._events):
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
        """Let every seat show what the monitor saw when it looked last."""
        monitor = self._setting.monitor
        looked_s = self.now_s // monitor.refresh_s * monitor.refresh_s
        if looked_s == self._measured_s:
            return
        self._measured_s = looked_s
        for place in self._places:
            place.seat.measured = place.history.at(looked_s, monitor)
            self._settle(place)
        self._waiting.look_again()

    def _settle(self, place: Place) -> None:
        """A GPU has settled when the last look at it has shown all that was launched there."""
        seen_s = self._measured_s if self._setting.conditions.telemetry else self.now_s
        shown = all(run.appeared_s <= seen_s for run in place.runs)
        place.seat.settled = shown or not self._setting.settle

    def _start(self, start: Start) -> None:
        ask, job = start.ask, self._jobs[start.ask.id]
        if any(seat.residents and seat.whole for seat in start.seats):
            raise AssertionError(f"{self._policy.name}: job {ask.id} put beside a whole GPU's job")
        record = self._records[ask.id]
        shared = any(seat.residents for seat in start.seats)
        pace = self._setting.pace
        self._busy_until_s = self.now_s + (pace.shared_s if shared else pace.idle_s)
        if record.start_s is None:
            record.start_s = self.now_s
        record.tries += 1
        residents = tuple(Resident(ask) for _ in start.seats)
        run = Run(job, ask, start.seats, residents, self.now_s, job.run_s, self.now_s)
        self._runs[job.id] = run
        for seat, resident in zip(start.seats, residents, strict=True):
            seat.residents.append(resident)
            self._sum(seat)
            self._places[seat.index].runs.append(run)
            seat.settled = not self._setting.settle
        self._waiting.remove(ask, start.seats[-1].index)
        self._change(start.seats)
        self._push(self.now_s + self._setting.ramp_s, MEMORY, job.id, record.tries)
        if job.limit_s is not None:
            limit_s = job.limit_s / min(1.0, run.speed if self._setting.stretch else 1.0)
            self._push(self.now_s + limit_s, LIMIT, job.id, record.tries)

    def _sum(self, seat: Seat) -> None:
        """The sums that policies read of a seat, from its residents."""
        residents = seat.residents
        seat.whole = any(not one.ask.share for one in residents)
        seat.reserved_mib = sum(
            seat.usable_mib if one.ask.need_mib is None or not one.ask.share else one.ask.need_mib
            for one in residents
        )
        seat.smact = sum(
            1.0 if one.ask.activity is None else one.ask.activity.smact for one in residents
        )

    # ---- ending ----------------------------------------------------------------------------

    def _leave(self, run: Run) -> None:
        del self._runs[run.job.id]
        for seat, resident in zip(run.seats, run.residents, strict=True):
            place = self._places[seat.index]
            seat.residents.remove(resident)
            place.runs.remove(run)
            if run.appeared_s <= self.now_s:
                place.used_mib -= run.job.memory_mib
            self._sum(seat)
            self._settle(place)
            self._waiting.freed(seat)
        record = self._records[run.job.id]
        record.ran_s += self.now_s - run.start_s
        self._change(run.seats)
        if self._setting.record:
            for seat in run.seats:
                need = run.ask.need_mib if run.ask.share else None
                self._pieces.append(Piece(run.job.id, seat.index, run.start_s, self.now_s, need))

    def _finish(self, run: Run) -> None:
        self._leave(run)
        record = self._records[run.job.id]
        record.end_s = self.now_s
        record.last_s = self.now_s - run.start_s
        self._forecast.learn(run.job)

    def _time_out(self, run: Run) -> None:
        self._leave(run)
        record = self._records[run.job.id]
        record.end_s, record.last_s = self.now_s, self.now_s - run.start_s
        record.timed_out = True
        self._timeouts += 1
        limit_s = run.job.limit_s or 0.0
        self._shared_timeouts += run.job.run_s <= limit_s

    def _memory(self, run: Run) -> None:
        """A job's memory appears: it fits, or the newcomer runs out."""
        need = run.ask.need_mib
        mine = run.job.memory_mib
        fenced = self._setting.fence and run.ask.share and need is not None and mine > need
        full = any(
            place.used_mib + mine > place.true_mib
            for place in (self._places[seat.index] for seat in run.seats)
        )
        alone = all(len(seat.residents) == 1 for seat in run.seats)
        if (full and alone and not run.ask.share) or (full and alone and need is None):
            full = False  # as large as the GPU and more: no GPU would hold it; let it run
        if not fenced and not full:
            run.appeared_s = self.now_s
            for seat in run.seats:
                place = self._places[seat.index]
                place.used_mib += mine
                self._settle(place)
                self._note(place)
            return
        self._oom += 1
        record = self._records[run.job.id]
        record.oom += 1
        self._leave(run)
        record.ask = self._recovered(run, record.oom)
        self._push(self.now_s + self._setting.recovery.delay_s, ARRIVE, run.job.id)

    def _recovered(self, run: Run, times: int) -> Ask:
        """What a job asks for after its n-th out-of-memory."""
        rule = self._setting.recovery
        need = run.ask.need_mib
        if need is not None and times <= len(rule.more_mib):
            largest = max(place.seat.usable_mib for place in self._places)
            more = need + rule.more_mib[times - 1]
            if more < largest:
                return replace(run.ask, need_mib=more)
        if rule.joinable and times == 1:
            return replace(run.ask, idle_only=True)
        return replace(run.ask, share=False)

    # ---- speeds ----------------------------------------------------------------------------

    def _change(self, seats: Sequence[Seat]) -> None:
        """Jobs came or went on these seats: new speeds, and new ends of all whom it concerns."""
        changed: dict[int, Run] = {}
        touched: dict[int, Place] = {}
        for seat in seats:
            place = self._places[seat.index]
            touched[seat.index] = place
            for run in place.runs:
                changed[run.job.id] = run
        speeds = {index: self._speeds(place) for index, place in touched.items()}
        for run in changed.values():
            slowest = 1.0
            for seat in run.seats:
                known = speeds.get(seat.index)
                if known is None:
                    touched[seat.index] = place = self._places[seat.index]
                    known = speeds[seat.index] = self._speeds(place)
                slowest = min(slowest, known[run.job.id])
            if slowest == run.speed and run.version > 0:
                continue
            run.left_s = max(0.0, run.left_s - (self.now_s - run.since_s) * run.speed)
            run.since_s = self.now_s
            run.speed = slowest
            run.version = next(self._versions)
            self._push(self.now_s + run.left_s / slowest, END, run.job.id, run.version)
            self._expect(run)
        for place in touched.values():
            self._note(place)

    def _speeds(self, place: Place) -> dict[int, float]:
        model, seat = self._setting.interference, place.seat
        if len(place.runs) == 1:
            run = place.runs[0]
            speed = 1.0
            if seat.fraction < 1.0:
                speed = model.slice_speed(run.job.activity, seat.fraction)
            return {run.job.id: speed}
        method = seat.method
        users = {run.job.user for run in place.runs}
        if method == "mps" and len(users) > 1 and not self._setting.multi_user_mps:
            method = "streams"
        found = model.speeds([run.job.activity for run in place.runs], method)
        if seat.fraction < 1.0:
            found = [
                speed * model.slice_speed(run.job.activity, seat.fraction)
                for speed, run in zip(found, place.runs, strict=True)
            ]
        return {run.job.id: speed for speed, run in zip(found, place.runs, strict=True)}

    def _expect(self, run: Run) -> None:
        """When the scheduler would expect this run's end, from what it may know."""
        alone_s = run.ask.run_s
        for resident in run.residents:
            if alone_s is None:
                resident.ends_s = resident.left_s = None
                continue
            done_s = run.job.run_s - run.left_s
            resident.left_s = max(alone_s - done_s, 0.05 * alone_s)
            resident.ends_s = self.now_s + resident.left_s / run.speed

    # ---- sums over time --------------------------------------------------------------------

    def _note(self, place: Place) -> None:
        smact = smocc = drama = drawn = 0.0
        for run in place.runs:
            activity = run.job.activity
            smact += activity.smact * run.speed
            smocc += (activity.smocc or 0.0) * run.speed
            drama += (activity.drama or 0.0) * run.speed
            drawn += dram_activity(activity) * run.speed
        place.card.now(self.now_s, smact - place.smact, drawn - place.drama)
        place.smact, place.drama = smact, drawn
        monitor = self._setting.monitor
        if self._setting.conditions.telemetry or self._setting.record:
            place.history.note(
                self.now_s,
                (min(1.0, smact), min(1.0, smocc), min(1.0, drama), place.used_mib),
                float("inf") if self._setting.record else monitor.window_s + 2 * monitor.refresh_s,
            )

    def _energy(self) -> float:
        """Joules of all GPUs until the last job ended."""
        end_s = max((record.end_s or 0.0 for record in self._records.values()), default=0.0)
        cards = {id(place.card): place.card for place in self._places}.values()
        for card in cards:
            card.now(end_s)
        return sum(card.joules for card in cards)


def _places(machine: Machine, setting: Setting) -> list[Place]:
    places = []
    kinds = {device.gpu: device.kind for device in machine.devices}
    cards = [Card(setting.power.on(kinds[gpu])) for gpu in range(machine.gpus)]
    for index, device in enumerate(machine.devices):
        seat = Seat(
            index,
            device.node,
            device.kind,
            device.usable_mib,
            setting.method,
            device.fraction,
            pool=setting.pool is None or device.gpu < setting.pool,
        )
        places.append(Place(seat, cards[device.gpu], device.true_mib, History(device.true_mib)))
    return places
