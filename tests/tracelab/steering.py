# SPDX-License-Identifier: Apache-2.0
"""Steered placement for the simulator: Slurm's order of the queue, and colocd's looks at it.

Between two looks of colocd Slurm starts jobs by itself, one after the other: the first one that
finds no room holds back all behind it, as all have the same long limit on one node. Only one that
colocd keeps at the gate is passed by. At a look core/place/steering, the very code of colocd, pins
jobs, lets them wait, or leaves them to Slurm.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from slurm_coloc.core.decide.slowdown import FULL
from slurm_coloc.core.place.gpu_slot import INF, GpuSlot, PlaceRequest
from slurm_coloc.core.place.placing import Policy, Start, View
from slurm_coloc.core.place.steering import (
    Act,
    Answer,
    Device,
    Node,
    Pin,
    Rules,
    Running,
    Snapshot,
    Waiting,
    steer,
)
from slurm_coloc.planning.live import Planner

NODE = "n1"
#: intervals that a job is not eligible which waits at the gate (flow/place/pins.PARKED), and the
#: second that it adds
PARKED, MORE_S = 3, 1.0


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of the trace: ``look_s`` between two looks, ``parked_s`` that a job at the gate is
    not eligible, ``limit_s`` time limit of all jobs, ``shows_s`` until a job's memory shows."""

    look_s: float
    parked_s: float
    limit_s: float
    shows_s: float


@dataclass(slots=True)
class _State:
    """A waiting job: its pin, until when it is not eligible, and since when either is so."""

    pin: Pin | None = None
    until_s: float = 0.0
    since_s: float | None = None


@dataclass
class Steered:
    """One run; it remembers what Slurm and colocd would. ``expected``: SM activity that colocd
    expects of each job (None: nothing); ``memory_mib``: what each takes; ``trainings``: what each
    trains, of which a plan uses what was measured of earlier jobs."""

    policy: Policy
    rules: Rules
    times: Times
    expected: Mapping[int, float | None]
    memory_mib: Mapping[int, int]
    trainings: Mapping[int, str] = field(default_factory=dict)
    planner: Planner | None = None
    name: str = "steered"
    _alone: dict[str, float] = field(default_factory=dict)
    _parts: dict[int, float] = field(default_factory=dict)
    _states: dict[int, _State] = field(default_factory=dict)
    _began_s: dict[int, float] = field(default_factory=dict)
    _polled_s: float = float("-inf")
    _turn: int = 0

    def next(self, view: View) -> Start | None:
        """As the protocol says."""
        new = [request for request in view.queue if request.id not in self._states]
        if view.now_s - self._polled_s >= self.times.look_s - 1e-6:
            self._polled_s = view.now_s
            self._look(view, {request.id for request in view.queue})
        elif self.planner is not None:
            for request in new:  # a share waits for the next look: a plan is made there alone
                self._states[request.id] = _State(until_s=INF if request.share else 0.0)
        elif new:
            self._look(view, {request.id for request in new})
        return self._start(view)

    # ---- Slurm ---------------------------------------------------------------------------------

    def _start(self, view: View) -> Start | None:
        for request in view.queue:
            state = self._states[request.id]
            if state.until_s > view.now_s:
                continue
            slots = self._room(request, state.pin, view)
            if slots is None:
                return None
            del self._states[request.id]
            self._began_s[request.id] = view.now_s
            return Start(request, slots)
        return None

    def _room(
        self, request: PlaceRequest, pin: Pin | None, view: View
    ) -> tuple[GpuSlot, ...] | None:
        """First fit, or the pin: by what is reserved, whatever telemetry says."""
        if not request.share:
            idle = [slot for slot in view.slots if not slot.residents]
            return tuple(idle[: request.gpus]) if len(idle) >= request.gpus else None
        assert request.need_mib is not None
        for slot in view.slots:
            if pin is not None and pin.kind != _kind(slot):
                continue
            if not slot.whole and slot.reserved_mib + request.need_mib <= slot.usable_mib:
                return (slot,)
        return None

    # ---- colocd --------------------------------------------------------------------------------

    def _look(self, view: View, changed: set[int]) -> None:
        """A look, of which the answers for ``changed`` are carried out."""
        snapshot = self._snapshot(view)
        if self.planner is not None:
            self._measure(view)
            snapshot, _ = self.planner.planned(snapshot)
        answers, self._turn = steer(snapshot, self.policy)
        told = {one.job_id: one for one in answers}
        for request in view.queue:
            state = self._states.setdefault(request.id, _State())
            if request.id in changed and request.id in told:
                self._apply(told[request.id], state, view.now_s)

    def _apply(self, answer: Answer, state: _State, now_s: float) -> None:
        if answer.act is Act.WAIT:
            state.pin = None
            state.until_s = now_s + self.times.parked_s
        else:
            state.until_s = now_s
            state.pin = answer.pin
        if answer.act in (Act.NATIVE, Act.UNPIN):
            state.since_s = None
        elif state.since_s is None:
            state.since_s = now_s

    def _measure(self, view: View) -> None:
        """Note the activity of trainings that have been alone on a GPU for a window, and of jobs
        that have been for as long on one that is not full: their parts tell."""
        for slot in view.slots:
            there = [one.request for one in slot.residents]
            began_s = max((self._began_s[one.id] for one in there), default=view.now_s)
            if slot.measured is None or view.now_s - began_s <= self.rules.window_s:
                continue
            if len(there) == 1:
                self._alone[self.trainings[there[0].id]] = slot.measured.smact
            elif slot.measured.smact < FULL:
                for one in there:
                    if one.activity is not None:
                        self._parts[one.id] = one.activity.smact

    def _smact(self, job_id: int) -> float | None:
        """What colocd knows of a job's SM activity."""
        known = self._alone.get(self.trainings.get(job_id, ""), self._parts.get(job_id))
        return self.expected.get(job_id) if known is None else known

    def _training(self, job_id: int) -> str:
        return f"0:{self.trainings[job_id]}" if job_id in self.trainings else ""

    def _snapshot(self, view: View) -> Snapshot:
        return Snapshot(
            at_s=view.now_s,
            rules=self.rules,
            nodes=(Node(NODE, tuple(map(self._device, view.slots)), cpus=999, memory_mib=10**9),),
            running=tuple(self._running(view)),
            waiting=tuple(self._waiting(request) for request in view.queue),
            turn=self._turn,
        )

    def _device(self, slot: GpuSlot) -> Device:
        shard_mib, shown = self.rules.shard_mib, slot.measured
        return Device(
            _kind(slot),
            slot.usable_mib // shard_mib,
            0 if slot.whole else slot.reserved_mib // shard_mib,
            slot.whole,
            None if shown is None else 0.0,
            0 if shown is None else shown.free_mib,
            None if shown is None else shown.smact,
        )

    def _running(self, view: View) -> list[Running]:
        places: dict[int, list[int]] = {}
        requests: dict[int, PlaceRequest] = {}
        ends_s: dict[int, float | None] = {}
        for slot in view.slots:
            for one in slot.residents:
                ends_s[one.request.id] = one.ends_s
                places.setdefault(one.request.id, []).append(slot.index)
                requests[one.request.id] = one.request
        return [
            Running(
                request.id,
                0,
                NODE,
                tuple(places[request.id]),
                self._shards(request),
                self._began_s[request.id],
                self._began_s[request.id] + self.times.limit_s,
                self._smact(request.id),
                self.memory_mib[request.id]
                if view.now_s - self._began_s[request.id] >= self.times.shows_s
                else 0,
                left_s=_left_s(ends_s[request.id], view.now_s),
                training=self._training(request.id),
            )
            for request in requests.values()
        ]

    def _waiting(self, request: PlaceRequest) -> Waiting:
        state = self._states.get(request.id, _State())
        return Waiting(
            request.id,
            "",
            0,
            request.gpus,
            self._shards(request),
            (NODE,),
            ours=request.share,
            pin=state.pin,
            since_s=state.since_s,
            run_s=self.times.limit_s,
            smact=self._smact(request.id),
            holdable=not request.share,
            expected_s=None if self.planner is None else request.run_s,
            spread=request.run_spread,
            training=self._training(request.id),
        )

    def _shards(self, request: PlaceRequest) -> int:
        return (request.need_mib or 0) // self.rules.shard_mib if request.share else 0


def _left_s(ends_s: float | None, now_s: float) -> float | None:
    """What a log says that a job takes still."""
    return None if ends_s is None else max(1.0, ends_s - now_s)


def _kind(slot: GpuSlot) -> str:
    return f"gpu-{slot.index}"
