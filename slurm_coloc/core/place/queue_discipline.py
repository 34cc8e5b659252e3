# SPDX-License-Identifier: Apache-2.0
"""Queue disciplines: which waiting job is tried next when the first one cannot start.

``depth`` of the view is 1 for strict order (the thesis' servers) and more for backfill as Slurm
does it: later jobs may start if the first one is not expected to start later for it. Where only a
pool of GPUs is shared, jobs that share and jobs with whole GPUs have a first one each, as if they
waited in two partitions.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from slurm_coloc.core.place.backfill import Reservation, reservation
from slurm_coloc.core.place.gpu_slot import INF, GpuSlot, PlaceRequest
from slurm_coloc.core.place.placing import Start, View, admits, admits_alone
from slurm_coloc.core.place.reserved_gpus import ReservedGpus

#: Lower is better; the key of several slots is that of the best one.
Key = Callable[[PlaceRequest, GpuSlot, View], tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class Tiered:
    """A key in two parts: a ``tier``, 0 at best, that takes long to find, then an ``order`` that
    does not. In its order, the search ends at the first slot of tier 0."""

    tier: Callable[[PlaceRequest, GpuSlot, View], int]
    order: Callable[[GpuSlot], tuple[float, ...]]

    def __call__(self, request: PlaceRequest, slot: GpuSlot, view: View) -> tuple[float, ...]:
        return (self.tier(request, slot, view), *self.order(slot))

    def best(self, request: PlaceRequest, slots: Iterable[GpuSlot], view: View) -> GpuSlot:
        """The one with the lowest key."""
        found: dict[int, GpuSlot] = {}
        for slot in sorted(slots, key=self.order):
            tier = self.tier(request, slot, view)
            if tier == 0:
                return slot
            found.setdefault(tier, slot)
        return found[min(found)]


def choose(
    request: PlaceRequest,
    slots: Iterable[GpuSlot],
    view: View,
    key: Key,
    idle_only: bool = False,
    guard: "Guard | None" = None,
) -> tuple[GpuSlot, ...] | None:
    """The best slots that admit a job; None where there are too few.

    On one node where one has enough slots, else on several. Where the conditions say so, idle slots
    in their order come before shared ones. ``idle_only``: idle ones, shared or not. ``guard``: of
    the jobs that come before it.
    """
    rules, model = view.conditions, view.interference
    open_slots: Sequence[GpuSlot]
    if idle_only:
        open_slots = [slot for slot in slots if admits_alone(request, slot)]
    else:
        open_slots = [slot for slot in slots if admits(request, slot, rules, model)]
    if guard is not None:
        open_slots = guard.allowed(request, open_slots)
    if rules.idle_first and not idle_only:
        idle = [slot for slot in open_slots if not slot.residents]
        found = _best(request, idle, view, _in_order)
        if found:
            return found
    return _best(request, open_slots, view, key)


def _in_order(request: PlaceRequest, slot: GpuSlot, view: View) -> tuple[float, ...]:
    return (slot.index,)


def _best(
    request: PlaceRequest, open_slots: Sequence[GpuSlot], view: View, key: Key
) -> tuple[GpuSlot, ...] | None:
    if len(open_slots) < request.gpus:
        return None
    if not request.share:
        # Whole GPUs come from outside the pool, and from uncut ones, as long as there are some.
        for fit in (_outside, _uncut):
            found = _best_of(request, [slot for slot in open_slots if fit(slot)], view, key)
            if found is not None:
                return found
    return _best_of(request, open_slots, view, key)


def _outside(slot: GpuSlot) -> bool:
    return not slot.pool and not slot.part


def _uncut(slot: GpuSlot) -> bool:
    return not slot.part


def _best_of(
    request: PlaceRequest, open_slots: Sequence[GpuSlot], view: View, key: Key
) -> tuple[GpuSlot, ...] | None:
    if len(open_slots) < request.gpus:
        return None
    if request.gpus == 1:
        if len(open_slots) == 1:
            return (open_slots[0],)
        if isinstance(key, Tiered):
            return (key.best(request, open_slots, view),)
        return (min(open_slots, key=lambda slot: key(request, slot, view)),)
    ranked = sorted(open_slots, key=lambda slot: key(request, slot, view))
    return one_node(request, ranked, view)


def one_node(
    request: PlaceRequest, ranked: Sequence[GpuSlot], view: View
) -> tuple[GpuSlot, ...] | None:
    """The first ``request.gpus`` of ``ranked`` on one node; on several if no node is so large.

    Each is on another GPU, since NCCL refuses two MIG instances of one GPU in one job, and the
    nodes' CPUs and memory suffice.
    """
    spread = request.gpus > view.largest_node()
    found: dict[int, list[GpuSlot]] = {}
    taken: list[GpuSlot] = []
    for slot in ranked:
        mine = found.setdefault(slot.node, [])
        if slot.part and any(slot.gpu == other.gpu for other in mine):
            continue
        if slot.host is not None and not slot.host.holds(request, len(mine) + 1):
            continue
        mine.append(slot)
        taken.append(slot)
        if len(taken if spread else mine) == request.gpus:
            return tuple(taken if spread else mine)
    return None


def first_that_starts(view: View, key: Key, idle_only: bool = False) -> Start | None:
    """The first waiting job in order, or one that may go before it, and its slots.

    ``idle_only``: nothing is shared.
    """
    guard = Guard(view, idle_only)
    for position, request in enumerate(view.queue):
        if position >= view.depth:
            break
        candidates = view.open_to(request)
        slots = choose(request, candidates, view, key, idle_only, guard) if candidates else None
        if slots is not None:
            return Start(request, slots)
        view.refuse(request)
        guard.blocked(request)
    return None


@dataclass(frozen=True, slots=True)
class ByOrder:
    """A policy that orders the GPUs that admit a job; slots with the lowest ``key`` are used."""

    name: str
    key: Key

    def next(self, view: View) -> Start | None:
        return first_that_starts(view, self.key)


class Guard:
    """Keeps later jobs from delaying those that come first.

    A policy that walks through the queue itself calls ``blocked`` for each job that it could not
    start, in order, and ``allowed`` for the slots that a later one may use.
    """

    def __init__(self, view: View, idle_only: bool = False) -> None:
        self._view, self._idle_only = view, idle_only
        self._heads: dict[bool, PlaceRequest] = {}
        self._held: list[Reservation] | None = None
        self._closed: frozenset[int] = frozenset()
        self._reserved_gpus = ReservedGpus()

    def blocked(self, request: PlaceRequest) -> None:
        """Note a job that cannot start now. The first of its sort gets a reservation."""
        lane = self._view.pooled and not request.share
        if self._view.depth > 1 and lane not in self._heads:
            self._heads[lane] = request
            self._held = None
        if self._view.conditions.keep_whole and not request.share:
            self._reserved_gpus.add(request, self._view.slots)
            self._held = None

    def allowed(self, request: PlaceRequest, slots: Sequence[GpuSlot]) -> Sequence[GpuSlot]:
        """The ``slots`` that a job may use although the blocked ones come first."""
        if not slots or not self._heads:
            return slots
        if request.share:
            slots = [slot for slot in slots if not self._reserved_gpus.has(slot)]
        if self._held is None:
            self._held = self._reserve()
        view, alone, closed = self._view, self._idle_only, self._closed
        return [
            slot
            for slot in slots
            if slot.index not in closed
            or all(held.leaves_room(request, slot, view, alone) for held in self._held)
        ]

    def _reserve(self) -> list[Reservation]:
        """Computed on first use: most events start nothing behind a blocked job."""
        view = self._view
        found = [reservation(request, view, self._idle_only) for request in self._heads.values()]
        held = [one for one in found if one is not None]
        self._closed = frozenset().union(*(one.closed for one in held))
        ids = frozenset(one.request.id for one in held) | self._reserved_gpus.jobs
        latest = max((one.start_s for one in held), default=-INF)
        view.hold(ids, self._closed, latest, self._reserved_gpus.slots)
        return held
