# SPDX-License-Identifier: Apache-2.0
"""Disciplines of a queue: which waiting job is tried next when the first one cannot start.

``depth`` of the view is 1 for strict order (the thesis' servers) and more for backfill as Slurm
does it: later jobs may start as long as the first one is not expected to start later for it. Where
only a pool of GPUs is shared, jobs that share and jobs that get whole GPUs have a first one each,
as if they waited in two partitions.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from slurm_coloc.core.place.backfill import Reservation, reservation
from slurm_coloc.core.place.gpu_slot import INF
from slurm_coloc.core.place.placing import GpuSlot, PlaceRequest, Start, View, admits, admits_alone
from slurm_coloc.core.place.reserved_gpus import ReservedGpus

#: Lower is better; the seats of one job are the best ones.
Key = Callable[[PlaceRequest, GpuSlot, View], tuple[float, ...]]


def choose(
    ask: PlaceRequest,
    seats: Iterable[GpuSlot],
    view: View,
    key: Key,
    idle_only: bool = False,
    guard: "Guard | None" = None,
) -> tuple[GpuSlot, ...] | None:
    """The best seats that admit a job; None where there are too few.

    Seats of one node where one node has enough; else of several. Where the conditions say so, idle
    seats in their order come before any that is shared. ``idle_only``: idle ones, shared or not.
    ``guard``: of the jobs that come before it.
    """
    rules, model = view.conditions, view.interference
    open_seats: Sequence[GpuSlot]
    if idle_only:
        open_seats = [seat for seat in seats if admits_alone(ask, seat)]
    else:
        open_seats = [seat for seat in seats if admits(ask, seat, rules, model)]
    if guard is not None:
        open_seats = guard.allowed(ask, open_seats)
    if rules.idle_first and not idle_only:
        idle = [seat for seat in open_seats if not seat.residents]
        found = _best(ask, idle, view, _in_order)
        if found:
            return found
    return _best(ask, open_seats, view, key)


def _in_order(ask: PlaceRequest, seat: GpuSlot, view: View) -> tuple[float, ...]:
    return (seat.index,)


def _best(
    ask: PlaceRequest, open_seats: Sequence[GpuSlot], view: View, key: Key
) -> tuple[GpuSlot, ...] | None:
    if len(open_seats) < ask.gpus:
        return None
    if not ask.share:
        # Whole GPUs come from outside the pool, and are whole, as long as there are some.
        for fit in (_outside, _uncut):
            found = _best_of(ask, [seat for seat in open_seats if fit(seat)], view, key)
            if found is not None:
                return found
    return _best_of(ask, open_seats, view, key)


def _outside(seat: GpuSlot) -> bool:
    return not seat.pool and not seat.part


def _uncut(seat: GpuSlot) -> bool:
    return not seat.part


def _best_of(
    ask: PlaceRequest, open_seats: Sequence[GpuSlot], view: View, key: Key
) -> tuple[GpuSlot, ...] | None:
    if len(open_seats) < ask.gpus:
        return None
    if ask.gpus == 1:
        if len(open_seats) == 1:
            return (open_seats[0],)
        return (min(open_seats, key=lambda seat: key(ask, seat, view)),)
    ranked = sorted(open_seats, key=lambda seat: key(ask, seat, view))
    return one_node(ask, ranked, view)


def one_node(
    ask: PlaceRequest, ranked: Sequence[GpuSlot], view: View
) -> tuple[GpuSlot, ...] | None:
    """The first ``ask.gpus`` of ``ranked`` that are on one node; on several if none is so large.

    Each on another GPU: NCCL refuses two MIG instances of one GPU in one job. The nodes' CPUs and
    memory suffice.
    """
    spread = ask.gpus > view.largest_node()
    found: dict[int, list[GpuSlot]] = {}
    taken: list[GpuSlot] = []
    for seat in ranked:
        mine = found.setdefault(seat.node, [])
        if seat.part and any(seat.gpu == other.gpu for other in mine):
            continue
        if seat.host is not None and not seat.host.holds(ask, len(mine) + 1):
            continue
        mine.append(seat)
        taken.append(seat)
        if len(taken if spread else mine) == ask.gpus:
            return tuple(taken if spread else mine)
    return None


def first_that_starts(view: View, key: Key, idle_only: bool = False) -> Start | None:
    """The first waiting job in order, or one that may go before it, and its seats.

    ``idle_only``: nothing is shared.
    """
    guard = Guard(view, idle_only)
    for position, ask in enumerate(view.queue):
        if position >= view.depth:
            break
        candidates = view.open_to(ask)
        seats = choose(ask, candidates, view, key, idle_only, guard) if candidates else None
        if seats is not None:
            return Start(ask, seats)
        view.refuse(ask)
        guard.blocked(ask)
    return None


@dataclass(frozen=True, slots=True)
class ByOrder:
    """A policy that is an order of the GPUs that admit a job. ``key``: the seats with the lowest
    keys are used."""

    name: str
    key: Key

    def next(self, view: View) -> Start | None:
        """As the protocol says."""
        return first_that_starts(view, self.key)


class Guard:
    """Keeps later jobs from delaying those that come first.

    A policy that walks through the queue itself tells it which jobs it could not start, in order,
    and asks it which seats a later one may use.
    """

    def __init__(self, view: View, idle_only: bool = False) -> None:
        self._view, self._idle_only = view, idle_only
        self._heads: dict[bool, PlaceRequest] = {}
        self._held: list[Reservation] | None = None
        self._closed: frozenset[int] = frozenset()
        self._kept = ReservedGpus()

    def blocked(self, ask: PlaceRequest) -> None:
        """A job cannot start now. The first of its sort gets a reservation."""
        lane = self._view.pooled and not ask.share
        if self._view.depth > 1 and lane not in self._heads:
            self._heads[lane] = ask
            self._held = None
        if self._view.conditions.keep_whole and not ask.share:
            self._kept.add(ask, self._view.seats)
            self._held = None

    def allowed(self, ask: PlaceRequest, seats: Sequence[GpuSlot]) -> Sequence[GpuSlot]:
        """Those of ``seats`` that a job may use before the ones that were blocked."""
        if not seats or not self._heads:
            return seats
        if ask.share:
            seats = [seat for seat in seats if not self._kept.has(seat)]
        if self._held is None:
            self._held = self._reserve()
        view, alone, closed = self._view, self._idle_only, self._closed
        return [
            seat
            for seat in seats
            if seat.index not in closed
            or all(held.leaves_room(ask, seat, view, alone) for held in self._held)
        ]

    def _reserve(self) -> list[Reservation]:
        """Computed when it is first needed: most events start nothing behind a blocked job."""
        view = self._view
        found = [reservation(ask, view, self._idle_only) for ask in self._heads.values()]
        held = [one for one in found if one is not None]
        self._closed = frozenset().union(*(one.closed for one in held))
        ids = frozenset(one.ask.id for one in held) | self._kept.jobs
        latest = max((one.start_s for one in held), default=-INF)
        view.hold(ids, self._closed, latest, self._kept.seats)
        return held
