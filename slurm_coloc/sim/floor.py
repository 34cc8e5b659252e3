# SPDX-License-Identifier: Apache-2.0
"""The GPUs of a simulation and the jobs that run on them: the truth behind what a policy sees.

A job's speed changes only when a neighbour comes or goes on one of its seats. Whoever moves a job
is handed the runs whose speed changed, to put their ends into the future anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from slurm_coloc.core.place.gpu_slot import INF, GpuSlot, Host, PlaceRequest, Resident
from slurm_coloc.core.place.interference import Interference
from slurm_coloc.core.place.speeds import BUSY, speeds_on
from slurm_coloc.sim.machine import Machine
from slurm_coloc.sim.power import Power, dram_activity
from slurm_coloc.sim.setting import Setting
from slurm_coloc.sim.telemetry import History
from slurm_coloc.sim.trace import TraceJob

#: part of its expected time that a job is given once more when it takes longer (a choice)
OVERDUE = 0.05


@dataclass(slots=True, eq=False)
class Run:
    """A job on its GPUs, as of ``since_s``.

    ``left_s``: seconds alone to go. ``limit_left_s``: what is left of its time limit. ``speed``:
    1 = as fast as alone; ``planned``: the speed by which the scheduler stretches its time limit.
    ``version``: another one for each change of speed of any run. ``appeared_s``: when its memory
    came. ``launched``: it works; until then it only holds its GPUs.
    """

    job: TraceJob
    ask: PlaceRequest
    seats: tuple[GpuSlot, ...]
    residents: tuple[Resident, ...]
    start_s: float
    left_s: float
    since_s: float
    limit_left_s: float = INF
    speed: float = 1.0
    planned: float = 1.0
    version: int = 0
    appeared_s: float = INF
    launched: bool = True

    def done_s(self, now_s: float) -> float:
        """Seconds alone that it has done by now."""
        return self.job.run_s - self.left_s + (now_s - self.since_s) * self.speed


@dataclass(slots=True, eq=False)
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


@dataclass(slots=True, eq=False)
class Bank:
    """Memory that its places share: of a GPU, or of a MIG GPU instance. ``true_mib``: what programs
    find."""

    true_mib: int
    used_mib: int = 0
    places: list["Place"] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Place:
    """What is true of a seat and a policy does not see. ``half_mib``: true memory of each half when
    MIG cuts the GPU in two."""

    seat: GpuSlot
    card: Card
    bank: Bank
    history: History
    half_mib: int = 0
    runs: list[Run] = field(default_factory=list)
    reserved_mib: int = 0
    smact: float = 0.0
    drama: float = 0.0

    def has_room(self, run: Run) -> bool:
        """Whether the memory of a run that is on it, and not there yet, fits."""
        if self.seat.halves(run.ask):
            return run.job.memory_mib <= self.half_mib
        return self.bank.used_mib + run.job.memory_mib <= self.bank.true_mib


class Floor:
    """All places and runs."""

    def __init__(self, machine: Machine, setting: Setting, widest: int = 1) -> None:
        """``widest``: the most GPUs that a job asks for."""
        self._setting = setting
        self.places = _places(machine, setting, widest)
        self.seats = [place.seat for place in self.places]
        self.runs: dict[int, Run] = {}
        self._holds: dict[tuple[int, int], bool] = {}
        # Never the same twice: a recovered job's former end must not end its new run.
        self._versions = count(1)
        # What was launched and appeared before this time is known; without telemetry: at once.
        self._looked_s = -INF if setting.conditions.telemetry else 1e300
        conditions = setting.conditions
        self._keep_s = INF if setting.record else 0.0
        if conditions.telemetry and not setting.record:
            self._keep_s = setting.monitor.window_s + 2 * setting.monitor.refresh_s

    def pool_holds(self, ask: PlaceRequest) -> bool:
        """Whether shared GPUs could ever hold a job: so many of one node, if any node has so many,
        and large enough."""
        case = (ask.gpus, ask.need_mib or 0)
        known = self._holds.get(case)
        if known is None:
            nodes = list({seat.gpu: seat.node for seat in self.seats}.values())
            spread = ask.gpus > max(nodes.count(node) for node in set(nodes))
            found: dict[int, set[int]] = {}
            for seat in self.seats:
                if seat.pool and seat.usable_mib >= case[1]:
                    found.setdefault(0 if spread else seat.node, set()).add(seat.gpu)
            known = any(len(gpus) >= ask.gpus for gpus in found.values())
            self._holds[case] = known
        return known

    # ---- coming and going ------------------------------------------------------------------

    def start(
        self, ask: PlaceRequest, job: TraceJob, seats: tuple[GpuSlot, ...], now_s: float
    ) -> Run:
        """A job starts; ``update`` must follow."""
        residents = tuple(Resident(ask) for _ in seats)
        limit_s = INF if job.limit_s is None else job.limit_s
        run = Run(job, ask, seats, residents, now_s, job.run_s, now_s, limit_s)
        run.launched = not self._setting.launch_s
        self.runs[job.id] = run
        for seat, resident in zip(seats, residents, strict=True):
            seat.residents.append(resident)
            place = self.places[seat.index]
            place.runs.append(run)
            self.settle(place)
            if seat.host is not None:
                seat.host.take(ask, 1)
            _tally(place)
        return run

    def leave(self, run: Run, now_s: float) -> None:
        """A job is gone; ``update`` must follow."""
        del self.runs[run.job.id]
        for seat, resident in zip(run.seats, run.residents, strict=True):
            place = self.places[seat.index]
            seat.residents.remove(resident)
            place.runs.remove(run)
            if run.appeared_s <= now_s:
                place.bank.used_mib -= run.job.memory_mib
                self._note_bank(place, now_s)
            if seat.host is not None:
                seat.host.take(run.ask, -1)
            self.settle(place)
            _tally(place)

    def has_room(self, run: Run) -> bool:
        """Whether a run's memory fits on all its GPUs now."""
        return all(self.places[seat.index].has_room(run) for seat in run.seats)

    def alone(self, run: Run) -> bool:
        """Whether nobody else has memory, or is about to, where a run is."""
        return all(
            other is run
            for seat in run.seats
            for place in self.places[seat.index].bank.places
            for other in place.runs
        )

    def appear(self, run: Run, now_s: float) -> None:
        """A run's memory is there."""
        run.appeared_s = now_s
        for seat in run.seats:
            place = self.places[seat.index]
            place.bank.used_mib += run.job.memory_mib
            self.settle(place)
            self._note_bank(place, now_s)

    def look(self, when_s: float) -> None:
        """Telemetry looks at all GPUs as they were at a time."""
        self._looked_s = when_s
        for place in self.places:
            place.seat.measured = place.history.at(when_s, self._setting.monitor)
            self.settle(place)

    def settle(self, place: Place) -> None:
        """A GPU has settled when all that was launched there has its memory, and telemetry, where
        it counts, has shown it."""
        if self._setting.settle:
            place.seat.settled = all(run.appeared_s <= self._looked_s for run in place.runs)

    # ---- speeds ----------------------------------------------------------------------------

    def update(self, seats: Sequence[GpuSlot], now_s: float) -> list[Run]:
        """Jobs came or went on these seats: bring all whom it concerns up to date. Returns those
        whose speed is another one."""
        touched = {seat.index: self.places[seat.index] for seat in seats}
        concerned = {run.job.id: run for place in touched.values() for run in place.runs}
        known: dict[int, dict[int, tuple[float, float]]] = {}
        changed = []
        for run in concerned.values():
            speed, planned = self._speed(run, known)
            if speed == run.speed and planned == run.planned and run.version:
                continue
            passed_s = now_s - run.since_s
            run.left_s = max(0.0, run.left_s - passed_s * run.speed)
            run.limit_left_s = max(0.0, run.limit_left_s - passed_s * run.planned)
            run.since_s, run.speed, run.planned = now_s, speed, planned
            run.version = next(self._versions)
            _expect(run, now_s)
            changed.append(run)
            for seat in run.seats:  # its slowest GPU is the others' speed too
                touched[seat.index] = self.places[seat.index]
        for place in touched.values():
            self._note(place, now_s)
        return changed

    def expect(self, run: Run, now_s: float) -> None:
        """Something else is expected of a run than before."""
        _expect(run, now_s)

    def _speed(
        self, run: Run, known: dict[int, dict[int, tuple[float, float]]]
    ) -> tuple[float, float]:
        """True and planned speed of a run: those on its slowest GPU."""
        speed = planned = INF
        for seat in run.seats:
            found = known.get(seat.index)
            if found is None:
                found = known[seat.index] = self._speeds(self.places[seat.index])
            here, plan = found[run.job.id]
            speed, planned = min(speed, here), min(planned, plan)
        return speed, planned if self._setting.stretch else 1.0

    def _speeds(self, place: Place) -> dict[int, tuple[float, float]]:
        setting, runs = self._setting, [run for run in place.runs if run.launched]
        asks = [run.ask for run in runs]
        model = setting.interference
        true = speeds_on(place.seat, model, asks, [run.job.activity for run in runs])
        believed: Interference = setting.believed or model
        planned = true
        if believed is not model or any(run.ask.activity is not run.job.activity for run in runs):
            planned = speeds_on(place.seat, believed, asks, [ask.activity or BUSY for ask in asks])
        found = {run.job.id: (0.0, 1.0) for run in place.runs}  # of those that do nothing yet
        found.update(
            zip([run.job.id for run in runs], zip(true, planned, strict=True), strict=True)
        )
        return found

    # ---- what is told of it ----------------------------------------------------------------

    def _note(self, place: Place, now_s: float) -> None:
        smact = smocc = drama = drawn = 0.0
        for run in place.runs:
            activity = run.job.activity
            smact += activity.smact * run.speed
            smocc += (activity.smocc or 0.0) * run.speed
            drama += (activity.drama or 0.0) * run.speed
            drawn += dram_activity(activity) * run.speed
        place.card.now(now_s, smact - place.smact, drawn - place.drama)
        place.smact, place.drama = smact, drawn
        if self._keep_s:
            # A MIG instance shows the activity of its own SMs.
            part = place.seat.fraction
            shown = (min(1.0, smact / part), min(1.0, smocc / part), min(1.0, drama / part))
            place.history.note(now_s, (*shown, place.bank.used_mib), self._keep_s)

    def _note_bank(self, place: Place, now_s: float) -> None:
        """Memory changed: all that share it show it."""
        if self._keep_s:
            for one in place.bank.places:
                self._note(one, now_s)

    def joules(self, end_s: float) -> float:
        """Energy of all GPUs until then."""
        cards = {id(place.card): place.card for place in self.places}.values()
        for card in cards:
            card.now(end_s)
        return sum(card.joules for card in cards)


def _tally(place: Place) -> None:
    """The sums that policies read of a seat, from its residents."""
    seat = place.seat
    reserved, smact, whole = 0, 0.0, False
    for one in seat.residents:
        ask = one.ask
        reserved += seat.usable_mib if ask.need_mib is None or not ask.share else ask.need_mib
        smact += 1.0 if ask.activity is None else ask.activity.smact
        whole = whole or not ask.share
    place.reserved_mib, seat.smact, seat.whole = reserved, smact, whole
    for other in place.bank.places:
        other.seat.reserved_mib = sum(one.reserved_mib for one in place.bank.places)


def _expect(run: Run, now_s: float) -> None:
    """When the scheduler would expect this run's end, from what it may know."""
    alone_s = run.ask.run_s
    if alone_s is None:
        return
    left_s = alone_s - run.done_s(now_s)
    if left_s <= 0.0:
        left_s = OVERDUE * alone_s
    ends_s = now_s + left_s / (run.speed or 1.0)
    for seat, resident in zip(run.seats, run.residents, strict=True):
        resident.ask, resident.left_s, resident.ends_s = run.ask, left_s, ends_s
        if seat.host is not None:
            seat.host.version += 1


def _places(machine: Machine, setting: Setting, widest: int) -> list[Place]:
    kinds = {device.gpu: device.kind for device in machine.devices}
    cards = {gpu: Card(setting.power.on(kind)) for gpu, kind in kinds.items()}
    hosts = _hosts(machine, setting)
    banks: dict[int, Bank] = {}
    parts = any(device.part for device in machine.devices)
    # Where there are too few whole GPUs, the largest instance of a GPU stands for it.
    enough = sum(not device.part for device in machine.devices) >= widest
    largest: dict[int, int] = {}
    for device in machine.devices:
        largest[device.gpu] = max(largest.get(device.gpu, 0), device.usable_mib)
    places = []
    for index, device in enumerate(machine.devices):
        seat = GpuSlot(
            index,
            device.node,
            device.kind,
            device.usable_mib,
            setting.method,
            device.fraction,
            pool=setting.pool is None or device.gpu < setting.pool,
            gpu=device.gpu,
            part=device.part,
            for_whole=not device.part or (not enough and device.usable_mib == largest[device.gpu]),
            multi_user=setting.multi_user_mps,
            host=hosts.get(device.node),
        )
        bank = banks.setdefault(device.bank, Bank(device.true_mib))
        place = Place(seat, cards[device.gpu], bank, History(device.true_mib))
        if setting.method == "mig" and not parts:
            cut = machine.halves(device)
            seat.fraction, seat.half = cut.whole, cut.half
            seat.half_mib, place.half_mib = cut.usable_mib, cut.true_mib
        bank.places.append(place)
        places.append(place)
    return places


def _hosts(machine: Machine, setting: Setting) -> dict[int, Host]:
    """The nodes by number."""
    cpus, mib = setting.node_cpus or INF, setting.node_host_mib or INF
    limited = bool(setting.node_cpus or setting.node_host_mib)
    return {device.node: Host(device.node, cpus, mib, limited) for device in machine.devices}
