# SPDX-License-Identifier: Apache-2.0
"""The GPUs as a policy sees them, with the jobs that the walk has placed so far."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.core.place.free_at import free_at
from slurm_coloc.core.place.gpu_slot import GpuSlot, Host, Measured, PlaceRequest, Resident
from slurm_coloc.core.place.interference import FITTED
from slurm_coloc.core.place.placing import Conditions, Policy, View, admits
from slurm_coloc.core.place.queue_discipline import Guard
from slurm_coloc.core.place.reserved_gpus import ReservedGpus
from slurm_coloc.core.place.steering.snapshot import Device, Node, Pin, Running, Snapshot, Waiting

#: assumed SM activity of a young job where it is not known
BUSY = 1.0


class Slots(list[GpuSlot]):
    """Slots, with what is the same for all jobs that may get them; not to be changed."""

    def __init__(self, slots: Iterable[GpuSlot]) -> None:
        super().__init__(slots)
        self._idle: Sequence[GpuSlot] = self

    def idle(self) -> Sequence[GpuSlot]:
        """Those without jobs: the walk makes them fewer only."""
        self._idle = [slot for slot in self._idle if not slot.residents]
        return self._idle

    @cached_property
    def by_node(self) -> dict[int, list[GpuSlot]]:
        """By the number of their node."""
        found: dict[int, list[GpuSlot]] = {}
        for slot in self:
            found.setdefault(slot.node, []).append(slot)
        return found


@dataclass(slots=True)
class _Blocked:
    """A job that cannot start, and the slots that it waits for. ``refused``: the policy has said
    so; it stays so, because the walk only starts jobs."""

    request: PlaceRequest
    slots: Slots
    refused: bool = False


@dataclass(slots=True)
class _JobView(View):
    """The policy's view. ``allowed``: the slots that the present job may get; ``before``: the first
    blocked job that waits for one of their nodes."""

    allowed: Sequence[GpuSlot] = ()
    before: _Blocked | None = None

    def open_to(self, request: PlaceRequest) -> Sequence[GpuSlot]:
        """The slots of the present job; of the blocked job before it, to be refused once more."""
        if self.before is None or request is not self.before.request:
            return self.allowed
        return () if self.before.refused else self.before.slots

    def refuse(self, request: PlaceRequest) -> None:
        """Note that no slot admits the job now."""
        if self.before is not None and request is self.before.request:
            self.before.refused = True


class GpuPlan:
    """The slots, with the jobs placed on them so far in the walk."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self.snapshot, self._policy, rules = snapshot, policy, snapshot.rules
        self.pins: list[Pin] = []
        self.slots: list[GpuSlot] = []
        self._nodes = {node.name: node for node in snapshot.nodes}
        self._closed: set[int] = set()  # slots with a job that no other may join
        self._by_job: dict[int, list[GpuSlot]] = {}
        self._there: dict[str, list[Running]] = {}
        # of each node: who has jobs there
        self._users = {node.name: {str(uid) for uid in node.users} for node in snapshot.nodes}
        for one in snapshot.running:
            self._there.setdefault(one.node, []).append(one)
            self._users.setdefault(one.node, set()).add(str(one.uid))
        for number, node in enumerate(snapshot.nodes):
            host = Host(number, node.cpus, node.memory_mib)
            for place, device in enumerate(node.devices):
                self.pins.append(Pin(node.name, device.kind))
                self.slots.append(self._slot(len(self.slots), number, node, place, host))
        gate = rules.smact_gate if rules.smact_gate < 1 else None
        self._plan = Conditions(jobs=rules.max_jobs, bearable=False, share_with=rules.share_with)
        self._gated = replace(
            self._plan,
            margin_mib=0,
            smact_at_most=gate,
            bearable=True,
            idle_first=idle_first(snapshot),
        )
        self._unbound = replace(self._gated, bearable=False)
        # A plan knows who slows whom; the gate is for those who do not.
        self._planned = replace(self._gated, smact_at_most=None)
        self._anyone = replace(self._plan, share_with="anyone")
        self.turn = snapshot.turn
        self._blocked: list[_Blocked] = []
        self._awaited: set[int] = set()  # nodes that some blocked job waits for
        self._open: dict[tuple[str, ...], Slots] = {}
        self._reserved = ReservedGpus()
        self._mixed = is_mixed(snapshot)
        self._by_host: dict[int, list[GpuSlot]] = {}
        self._plans: dict[bool, Any] = {}
        self._reservations: dict[bool, Any] = {}
        self._largest = max((len(node.devices) for node in snapshot.nodes), default=1)

    def _slot(self, index: int, number: int, node: Node, place: int, host: Host) -> GpuSlot:
        device, rules, now_s = node.devices[place], self.snapshot.rules, self.snapshot.at_s
        slot = GpuSlot(
            index,
            number,
            device.kind,
            device.shards * rules.shard_mib,
            pool=node.steered and device.shards > 0,
            gpu=index,
            multi_user=rules.multi_user,
            host=host,
            card=device.card,
        )
        if device.closed:
            self._closed.add(index)
        slot.measured = self._fresh(device)
        shares = 0
        # Telemetry is a mean over window_s: it shows a job fully after that time.
        for one in self._there.get(node.name, ()):
            if place in one.devices:
                shares += one.shards
                young = one.start_s is None or now_s - one.start_s < rules.window_s
                request = request_of(one, rules.shard_mib)
                if one.left_s is not None and one.start_s is not None:
                    request = replace(request, run_s=one.left_s + max(0.0, now_s - one.start_s))
                self._put(slot, request, one.ends_s, one.held_mib if young else None)
        if device.whole and not slot.residents:
            self._put(slot, PlaceRequest(-index - 1, 1, None, None, 0.0, share=False), None, None)
        elif device.used > shares:
            # Shards of a job whose GPU on this node is not known.
            need = (device.used - shares) * rules.shard_mib
            self._put(slot, PlaceRequest(-index - 1, 1, need, None, 0.0), None, None)
        return slot

    def _fresh(self, device: Device) -> Measured | None:
        if device.age_s is None or device.age_s > self.snapshot.rules.stale_s:
            return None
        return Measured(device.free_mib, device.smact or 0.0)

    def _put(
        self, slot: GpuSlot, request: PlaceRequest, ends_s: float | None, held_mib: int | None
    ) -> None:
        """Put a job on a slot. ``held_mib``: the MiB that telemetry shows of a job too young for
        it; None: telemetry shows all of the job."""
        slot.residents.append(Resident(request, ends_s))
        self._by_job.setdefault(request.id, []).append(slot)
        slot.whole = slot.whole or not request.share
        need = slot.usable_mib if request.need_mib is None else request.need_mib
        slot.reserved_mib += need
        smact = BUSY if request.activity is None else request.activity.smact
        slot.smact += smact
        shown = slot.measured
        if shown is not None and held_mib is not None:
            free = max(0, shown.free_mib - max(0, need - held_mib))
            slot.measured = replace(shown, free_mib=free, smact=min(1.0, shown.smact + smact))

    def fresh(self, pin: Pin) -> bool:
        """Whether telemetry of a GPU is young enough."""
        return self.slots[self.pins.index(pin)].measured is not None

    def open(self, pin: Pin) -> bool:
        """Whether jobs may start on its node."""
        node = self._nodes.get(pin.node)
        return node is not None and node.open and pin in self.pins

    def allowed(self, job: Waiting, leaving: Collection[int] = ()) -> Slots:
        """The slots that Slurm may give to a job; for ours only steered ones with telemetry.
        ``leaving``: slots on which memory is of jobs that have just ended."""
        there = self._on_open_nodes(job.nodes)
        if not job.ours:
            return there
        return Slots(
            slot
            for slot in there
            if slot.pool
            and slot.measured is not None
            and (slot.index in leaving or not self._is_held(slot, job))
        )

    def _is_held(self, slot: GpuSlot, job: Waiting) -> bool:
        """Whether a process that Slurm does not know holds memory there."""
        need, shown = job.shards * self.snapshot.rules.shard_mib, slot.measured
        return slot.idle and shown is not None and shown.free_mib < need

    def is_early(self, job: Waiting, request: PlaceRequest, indexes: Sequence[int]) -> bool:
        """Whether telemetry alone keeps a job from these slots."""
        slots = [self.slots[index] for index in indexes]
        there = all(slot in self._on_open_nodes(job.nodes) for slot in slots)
        if not there or any(slot.measured is None for slot in slots):
            return False
        if not all(admits(request, slot, self._plan, FITTED) for slot in slots):
            return False
        shown = all(admits(request, slot, self._planned, FITTED) for slot in slots)
        return not shown or any(self._is_held(slot, job) for slot in slots)

    def _on_open_nodes(self, names: tuple[str, ...]) -> Slots:
        """The slots of those of these nodes on which jobs may start now."""
        if names not in self._open:
            nodes = {name for name in names if name in self._nodes and self._nodes[name].open}
            pairs = zip(self.slots, self.pins, strict=True)
            self._open[names] = Slots(slot for slot, pin in pairs if pin.node in nodes)
        return self._open[names]

    def of_one_user(self, job: Waiting, allowed: Sequence[GpuSlot]) -> Sequence[GpuSlot]:
        """Where Slurm gives nodes to one user at a time: the slots of nodes without others'
        jobs."""
        if not job.exclusive_user:
            return allowed
        own = {str(job.uid)}
        return [slot for slot in allowed if self._users[self.pins[slot.index].node] <= own]

    def next(self, request: PlaceRequest, allowed: Sequence[GpuSlot]) -> tuple[GpuSlot, ...] | None:
        """The policy's slots for a job that must not delay the first blocked one."""
        if request.share:
            allowed = [slot for slot in allowed if slot.index not in self._closed]
        else:
            allowed = allowed.idle() if isinstance(allowed, Slots) else Slots(allowed).idle()
        if len(allowed) < request.gpus:
            return None
        first = self._before(allowed)
        view = self._view(request, first, allowed)
        start = self._policy.next(view)
        if start is None or start.request is not request:
            return None
        return start.slots if all(slot in allowed for slot in start.slots) else None

    def _view(
        self, request: PlaceRequest, first: _Blocked | None, allowed: Sequence[GpuSlot]
    ) -> _JobView:
        """What the policy sees of a job behind the ``first`` blocked one."""
        queue = [request] if first is None else [first.request, request]
        view = _JobView(
            self.snapshot.at_s,
            queue,
            self.slots,
            self._gated,
            FITTED,
            self.turn,
            depth=max(2, len(queue)),
            mixed=self._mixed,
            by_host=self._by_host,
            plans=self._plans,
            reservations=self._reservations,
            by_job=self._by_job,
            node_gpus=self._largest,
            allowed=allowed,
            before=first,
        )
        if first is not None:  # its reservation is on nodes that it may get
            view.by_node = first.slots.by_node
        return view

    def may_start(self, request: PlaceRequest, slots: Sequence[GpuSlot]) -> bool:
        """Whether a plan's choice holds by what is so now, and delays no blocked job before it."""
        if any(slot.index in self._closed or self._reserved.has(slot) for slot in slots):
            return False
        if not all(admits(request, slot, self._planned, FITTED) for slot in slots):
            return False
        first = self._before(slots)
        if first is None:
            return True
        guard = Guard(self._view(request, first, slots))
        guard.blocked(first.request)
        return len(guard.allowed(request, slots)) == len(slots)

    def start(self, request: PlaceRequest, slots: Sequence[GpuSlot], run_s: float | None) -> None:
        """Put a job on these slots for the rest of the walk."""
        ends_s = None if run_s is None else self.snapshot.at_s + run_s
        self._reservations.clear()
        for slot in slots:
            self._users[self.pins[slot.index].node].add(request.user)
            self._put(slot, request, ends_s, 0)
            if slot.host is not None:
                slot.host.take(request, 1)

    def blocked(self, request: PlaceRequest, allowed: Slots) -> None:
        """Note a job that cannot start on ``allowed``: later jobs must not delay it there."""
        if self.snapshot.rules.whole_first and not request.share:
            self._reserved.add(request, allowed)
        if not allowed.by_node.keys() <= self._awaited:  # else no later job meets this one first
            self._blocked.append(_Blocked(request, allowed))
            self._awaited |= allowed.by_node.keys()

    def _before(self, allowed: Sequence[GpuSlot]) -> _Blocked | None:
        """The first blocked job that waits for a node of these slots."""
        nodes = {slot.node for slot in allowed}
        for one in self._blocked:
            if not nodes.isdisjoint(one.slots.by_node):
                return one
        return None

    def unreserved(self, slots: Sequence[GpuSlot]) -> Sequence[GpuSlot]:
        """The ``slots`` that are not reserved for an earlier job that waits for whole GPUs."""
        left = [slot for slot in slots if not self._reserved.has(slot)]
        return slots if len(left) == len(slots) else left

    def turns(self, request: PlaceRequest, slots: Sequence[GpuSlot]) -> list[GpuSlot]:
        """The slots on which a job may wait for its turn, without room by plan or blocked only by
        earlier jobs: by the time when room is expected, GPUs that a job has whole last."""
        view = View(self.snapshot.at_s, [request], self.slots, self._plan, FITTED)
        found = []
        for slot in slots:
            gated = admits(request, slot, self._plan, FITTED) != admits(
                request, slot, self._gated, FITTED
            )
            when = free_at(request, slot, view)
            if when is not None and not gated and slot.index not in self._closed:
                found.append((slot.whole, when, slot.index))
        return [self.slots[index] for *_, index in sorted(found)]

    def has_room(self, request: PlaceRequest, allowed: Sequence[GpuSlot]) -> bool:
        """Whether there is room by plan, without telemetry."""
        return any(admits(request, slot, self._plan, FITTED) for slot in allowed)

    def first_with_room(
        self, request: PlaceRequest, allowed: Sequence[GpuSlot]
    ) -> tuple[GpuSlot, ...] | None:
        """The first slot with room by plan: what Slurm would choose among GPUs that it may have."""
        for slot in allowed:
            if slot.index not in self._closed and self.has_room(request, [slot]):
                return (slot,)
        return None

    def is_others(self, request: PlaceRequest, allowed: Sequence[GpuSlot]) -> bool:
        """Whether there is room by plan, but only beside users that it may not share with."""
        room = any(admits(request, slot, self._anyone, FITTED) for slot in allowed)
        return room and not self.has_room(request, allowed)

    def is_gated(self, request: PlaceRequest, allowed: Sequence[GpuSlot]) -> bool:
        """Whether there is room by plan, but telemetry or a slowdown limit refuses every slot."""
        admitted = (
            admits(request, slot, self._gated, FITTED)
            for slot in allowed
            if slot.index not in self._closed
        )
        return self.has_room(request, allowed) and not any(admitted)

    def is_bound(self, request: PlaceRequest, allowed: Sequence[GpuSlot]) -> bool:
        """Whether only a slowdown limit refuses it."""
        return any(admits(request, slot, self._unbound, FITTED) for slot in allowed)


def idle_first(snapshot: Snapshot) -> bool:
    """Whether idle GPUs come before shared ones. "auto": while no job waits for whole GPUs or has
    them. Where there are such jobs, sharers on idle GPUs make them wait (ADR 23)."""
    wish = snapshot.rules.idle_first
    return wish if isinstance(wish, bool) else not is_mixed(snapshot)


def is_mixed(snapshot: Snapshot) -> bool:
    """Whether a job has whole GPUs or waits for nothing but them. One that its owner holds, or that
    waits for a date or a limit, changes nobody's place."""
    shards = [one.shards for one in snapshot.running]
    shards += [one.shards for one in snapshot.waiting if one.startable]
    return not all(shards)


def request_of(job: Waiting | Running, shard_mib: int) -> PlaceRequest:
    """A job as a policy sees it; a running one without CPUs and run time."""
    request = PlaceRequest(
        job.job_id,
        job.gpus if isinstance(job, Waiting) else max(1, len(job.devices)),
        job.shards * shard_mib if job.shards else None,
        None if job.smact is None else Activity(job.smact, fingerprint=job.training),
        0.0,
        user=str(job.uid),
        # An account that is not known is nobody else's.
        account=job.account or f"uid {job.uid}",
        share=bool(job.shards),
        max_slowdown=job.max_slowdown,
    )
    if isinstance(job, Running):
        return request if job.left_s is None else replace(request, run_s=job.left_s)
    return replace(request, run_s=job.run_s, cpus=job.cpus, host_mib=job.memory_mib)
