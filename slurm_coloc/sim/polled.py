# SPDX-License-Identifier: Apache-2.0
"""What colocd polls of a simulated cluster, as core/place/steering takes it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slurm_coloc.core.decide.slowdown import FULL
from slurm_coloc.core.place.gate_wait import ahead_s
from slurm_coloc.core.place.gpu_slot import GpuSlot, PlaceRequest
from slurm_coloc.core.place.placing import View
from slurm_coloc.core.place.steering import Device, Node, Pin, Rules, Running, Snapshot, Waiting

#: what colocd may use of a node whose CPUs and memory the simulator does not count
ANY_CPUS, ANY_MIB = 10**6, 10**9
#: that colocd adds to core/place/gate_wait.ahead_s, in which a job at the gate is not eligible
MORE_S = 1.0
#: windows of telemetry for which jobs are on a GPU before its figure counts, as in
#: flow/place/job_facts
SETTLED = 2


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds: ``poll_s`` between two polls, ``parked_s`` that a job at the gate is not eligible,
    ``limit_s`` time limit of all jobs (None: as long as each is expected to run), ``shows_s`` until
    a job's memory shows."""

    poll_s: float = 5.0
    parked_s: float = ahead_s(5.0) + MORE_S
    limit_s: float | None = None
    shows_s: float = 45.0


@dataclass(frozen=True, slots=True)
class Knows:
    """What colocd knows besides the requests. ``smact``: SM activity that it expects of each job
    before one was measured (None: nothing); ``memory_mib``: what each job takes; ``trainings``:
    what each trains, of which a plan uses what was measured of earlier jobs."""

    smact: Mapping[int, float | None]
    memory_mib: Mapping[int, int]
    trainings: Mapping[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class State:
    """A waiting job: its pin, until when it is not eligible, and since when either is so."""

    pin: Pin | None = None
    until_s: float = 0.0
    since_s: float | None = None


@dataclass
class Polled:
    """The cluster, poll by poll. ``knows``: None where colocd knows the activity and memory of each
    request; ``plans``: whether it is told how long jobs run."""

    rules: Rules
    times: Times
    knows: Knows | None
    plans: bool
    began_s: dict[int, float] = field(default_factory=dict)
    _places: dict[int, tuple[str, int]] = field(default_factory=dict)  # node and number of a slot
    _nodes: tuple[str, ...] = ()
    _uids: dict[str, int] = field(default_factory=dict)
    _alone: dict[str, float] = field(default_factory=dict)
    _parts: dict[int, float] = field(default_factory=dict)
    _there: dict[int, tuple[tuple[int, ...], float]] = field(default_factory=dict)

    @property
    def numbered(self) -> bool:
        """Whether the GPUs have their numbers."""
        return bool(self._places)

    def number(self, view: View) -> None:
        """Give the GPUs their nodes' names and their numbers there."""
        for node, slots in view.nodes().items():
            for place, slot in enumerate(slots):
                self._places[slot.index] = f"n{node}", place
        self._nodes = tuple(dict.fromkeys(name for name, _ in self._places.values()))

    def snapshot(self, view: View, states: Mapping[int, State], turn: int) -> Snapshot:
        """All that steering is told. ``states``: of the jobs that wait, where they have one."""
        return Snapshot(
            at_s=view.now_s,
            rules=self.rules,
            nodes=tuple(self._node(slots) for slots in view.nodes().values()),
            running=tuple(self._running(view)),
            waiting=tuple(
                self._waiting(request, states.get(request.id, State())) for request in view.queue
            ),
            turn=turn,
        )

    def _node(self, slots: Sequence[GpuSlot]) -> Node:
        name, host = self._places[slots[0].index][0], slots[0].host
        cpus, mib = ANY_CPUS, ANY_MIB
        if host is not None and host.limited:
            cpus, mib = int(min(host.cpus, ANY_CPUS)), int(min(host.host_mib, ANY_MIB))
        return Node(name, tuple(map(self._device, slots)), cpus=cpus, memory_mib=mib)

    def _device(self, slot: GpuSlot) -> Device:
        shard_mib, shown = self.rules.shard_mib, slot.measured
        return Device(
            self.pin(slot).kind,
            slot.usable_mib // shard_mib if slot.pool else 0,
            0 if slot.whole else slot.reserved_mib // shard_mib,
            slot.whole,
            None if shown is None else 0.0,
            0 if shown is None else shown.free_mib,
            None if shown is None else shown.smact,
        )

    def pin(self, slot: GpuSlot) -> Pin:
        """The pin that names a GPU."""
        node, place = self._places[slot.index]
        return Pin(node, f"gpu-{place}")

    def ours(self, request: PlaceRequest) -> bool:
        """Whether colocd may pin it: a share of one GPU."""
        return request.share and request.gpus == 1 and request.need_mib is not None

    def _running(self, view: View) -> list[Running]:
        places: dict[int, list[GpuSlot]] = {}
        ends_s: dict[int, float | None] = {}
        requests: dict[int, PlaceRequest] = {}
        for slot in view.slots:
            for one in slot.residents:
                ends_s[one.request.id] = one.ends_s
                places.setdefault(one.request.id, []).append(slot)
                requests[one.request.id] = one.request
        return [
            self._one_running(request, places[request.id], ends_s[request.id], view.now_s)
            for request in requests.values()
        ]

    def _one_running(
        self, request: PlaceRequest, slots: Sequence[GpuSlot], ends_s: float | None, now_s: float
    ) -> Running:
        places = [self._places[slot.index] for slot in slots]
        nodes = dict.fromkeys(name for name, _ in places)
        began_s = self.began_s[request.id]
        held_mib = self.knows.memory_mib[request.id] if self.knows else request.need_mib or 0
        return Running(
            request.id,
            self._uid(request),
            ",".join(nodes),
            # of a job of several nodes colocd knows no GPUs, only that they are taken
            tuple(place for _, place in places) if len(nodes) == 1 else (),
            self._shards(request),
            began_s,
            ends_s if self.times.limit_s is None else began_s + self.times.limit_s,
            self._smact(request),
            held_mib if now_s - began_s >= self.times.shows_s else 0,
            max_slowdown=request.max_slowdown,
            account=request.account,
            # by its log, which is read for plans alone
            left_s=max(1.0, ends_s - now_s) if self.plans and ends_s is not None else None,
            training=self._training(request),
        )

    def _waiting(self, request: PlaceRequest, state: State) -> Waiting:
        return Waiting(
            request.id,
            "",
            self._uid(request),
            request.gpus,
            self._shards(request),
            self._nodes,
            ours=self.ours(request),
            pin=state.pin,
            since_s=state.since_s,
            run_s=request.run_s if self.times.limit_s is None else self.times.limit_s,
            smact=self._smact(request),
            cpus=request.cpus,
            memory_mib=request.host_mib,
            max_slowdown=request.max_slowdown,
            account=request.account,
            holdable=not request.share,
            expected_s=request.run_s if self.plans else None,
            spread=request.run_spread,
            training=self._training(request),
        )

    def _shards(self, request: PlaceRequest) -> int:
        return (request.need_mib or 0) // self.rules.shard_mib if request.share else 0

    def measure(self, view: View) -> None:
        """Note the activity of trainings that have been alone on their GPUs for two windows, and of
        jobs that have been for as long on one that is not full: their parts tell."""
        alone: dict[int, list[float]] = {}
        for slot in view.slots:
            there = [one.request for one in slot.residents]
            ids = tuple(one.id for one in there)
            known = self._there.get(slot.index)
            if known is None or known[0] != ids:
                known = self._there[slot.index] = ids, view.now_s
            settled = view.now_s - known[1] > SETTLED * self.rules.window_s
            if slot.measured is None or not settled:
                continue
            if len(there) == 1:
                alone.setdefault(there[0].id, []).append(slot.measured.smact)
                if len(alone[there[0].id]) == there[0].gpus:
                    self._alone[self._trains(there[0])] = max(alone[there[0].id])
            elif slot.measured.smact < FULL:
                for one in there:
                    if one.activity is not None:
                        self._parts[one.id] = one.activity.smact

    def _smact(self, request: PlaceRequest) -> float | None:
        """What colocd knows of a job's SM activity."""
        if self.knows is None:
            return None if request.activity is None else request.activity.smact
        found = self._alone.get(self._trains(request), self._parts.get(request.id))
        return self.knows.smact.get(request.id) if found is None else found

    def _trains(self, request: PlaceRequest) -> str:
        """The training of a job, "": it is not known."""
        return "" if self.knows is None else self.knows.trainings.get(request.id, "")

    def _training(self, request: PlaceRequest) -> str:
        """As steering is told it."""
        name = self._trains(request)
        return f"{self._uid(request)}:{name}" if name else ""

    def _uid(self, request: PlaceRequest) -> int:
        return self._uids.setdefault(request.user, len(self._uids))
