# SPDX-License-Identifier: Apache-2.0
"""What is true of the GPUs of a simulation and of the jobs on them, which a policy does not see."""

from dataclasses import dataclass, field

from slurm_coloc.core.place.gpu_slot import INF, GpuSlot, Host, PlaceRequest, Resident
from slurm_coloc.sim.machine import Machine
from slurm_coloc.sim.power import Power
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
    request: PlaceRequest
    slots: tuple[GpuSlot, ...]
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

    def expect(self, now_s: float) -> None:
        """When the scheduler would expect this run's end, from what it may know."""
        alone_s = self.request.run_s
        if alone_s is None:
            return
        left_s = alone_s - self.done_s(now_s)
        if left_s <= 0.0:
            left_s = OVERDUE * alone_s
        ends_s = now_s + left_s / (self.speed or 1.0)
        for slot, resident in zip(self.slots, self.residents, strict=True):
            resident.request, resident.left_s, resident.ends_s = self.request, left_s, ends_s
            if slot.host is not None:
                slot.host.version += 1


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
    """What is true of a slot and a policy does not see. ``half_mib``: true memory of each half when
    MIG cuts the GPU in two."""

    slot: GpuSlot
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
        if self.slot.halves(run.request):
            return run.job.memory_mib <= self.half_mib
        return self.bank.used_mib + run.job.memory_mib <= self.bank.true_mib

    def tally(self) -> None:
        """Bring the sums that policies read of the slot up to date with its residents."""
        slot = self.slot
        reserved, smact, whole = 0, 0.0, False
        for one in slot.residents:
            request = one.request
            reserved += (
                slot.usable_mib
                if request.need_mib is None or not request.share
                else request.need_mib
            )
            smact += 1.0 if request.activity is None else request.activity.smact
            whole = whole or not request.share
        self.reserved_mib, slot.smact, slot.whole = reserved, smact, whole
        for other in self.bank.places:
            other.slot.reserved_mib = sum(one.reserved_mib for one in self.bank.places)


def places_of(machine: Machine, setting: Setting, widest: int) -> list[Place]:
    """A place for each GPU or MIG instance. ``widest``: the most GPUs that a job asks for."""
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
        slot = GpuSlot(
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
        place = Place(slot, cards[device.gpu], bank, History(device.true_mib))
        if setting.method == "mig" and not parts:
            slot.half_mib, cut = machine.halves(device)
            slot.fraction, slot.half = cut.whole, cut.half
            place.half_mib = cut.mib
        bank.places.append(place)
        places.append(place)
    return places


def _hosts(machine: Machine, setting: Setting) -> dict[int, Host]:
    """The nodes by number."""
    cpus, mib = setting.node_cpus or INF, setting.node_host_mib or INF
    limited = bool(setting.node_cpus or setting.node_host_mib)
    return {device.node: Host(device.node, cpus, mib, limited) for device in machine.devices}
