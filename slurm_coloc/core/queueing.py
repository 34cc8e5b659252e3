# SPDX-License-Identifier: Apache-2.0
"""Disciplines of a queue: which waiting job is tried next when the first one cannot start.

``depth`` of the view is 1 for strict order (the thesis' servers) and more for backfill as Slurm
does it: later jobs may start as long as the first one is not expected to start later for it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from slurm_coloc.core.placing import Ask, Seat, Start, View, admits

#: Lower is better; the seats of one job are the best ones.
Key = Callable[[Ask, Seat, View], tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class Reservation:
    """Where and when the first waiting job is expected to start."""

    ask: Ask
    seats: frozenset[int]
    start_s: float


def choose(
    ask: Ask, seats: Iterable[Seat], view: View, key: Key, idle_only: bool = False
) -> tuple[Seat, ...] | None:
    """The best seats that admit a job; None where there are too few.

    Seats of one node where one node has enough; else of several. Where the conditions say so, idle
    seats in their order come before any that is shared.
    """
    if idle_only or view.conditions.idle_first:
        idle = [seat for seat in seats if not seat.residents]
        found = _choose(ask, idle, view, _in_order)
        if found or idle_only:
            return found
    return _choose(ask, seats, view, key)


def _in_order(ask: Ask, seat: Seat, view: View) -> tuple[float, ...]:
    return (seat.index,)


def _choose(ask: Ask, seats: Iterable[Seat], view: View, key: Key) -> tuple[Seat, ...] | None:
    rules, model = view.conditions, view.interference
    open_seats = [seat for seat in seats if admits(ask, seat, rules, model)]
    if len(open_seats) < ask.gpus:
        return None
    if ask.gpus == 1:
        if len(open_seats) == 1:
            return (open_seats[0],)
        return (min(open_seats, key=lambda seat: key(ask, seat, view)),)
    ranked = sorted(open_seats, key=lambda seat: key(ask, seat, view))
    return one_node(ask, ranked, view.seats)


def one_node(ask: Ask, ranked: Sequence[Seat], seats: Sequence[Seat]) -> tuple[Seat, ...] | None:
    """The first ``ask.gpus`` of ``ranked`` that are on one node; on several if none is so large."""
    found: dict[int, list[Seat]] = {}
    for seat in ranked:
        mine = found.setdefault(seat.node, [])
        mine.append(seat)
        if len(mine) == ask.gpus:
            return tuple(mine)
    sizes: dict[int, int] = {}
    for seat in seats:
        sizes[seat.node] = sizes.get(seat.node, 0) + 1
    if ask.gpus > max(sizes.values()):
        return tuple(ranked[: ask.gpus])
    return None


def first_that_starts(view: View, key: Key, idle_only: bool = False) -> Start | None:
    """The first waiting job in order, or one that may go before it, and its seats.

    ``idle_only``: nothing is shared.
    """
    held: Reservation | None = None
    for position, ask in enumerate(view.queue):
        if position >= view.depth:
            break
        candidates = view.open_to(ask)
        if candidates and held is not None:
            candidates = [seat for seat in candidates if _leaves_room(ask, seat, held, view)]
        seats = choose(ask, candidates, view, key, idle_only) if candidates else None
        if seats is not None:
            return Start(ask, seats)
        view.refuse(ask)
        if position == 0 and view.depth > 1:
            held = reservation(ask, view)
    return None


def reservation(ask: Ask, view: View) -> Reservation | None:
    """Where a job that cannot start now is expected to start first; None where nothing tells."""
    times = [(when, seat) for seat in view.seats if (when := _free_at(ask, seat)) is not None]
    times.sort(key=lambda pair: (pair[0], pair[1].index))
    seats = one_node(ask, [seat for _, seat in times], view.seats)
    if seats is None or len(seats) < ask.gpus:
        return None
    free_at = {seat.index: at for at, seat in times}
    start_s = max(free_at[seat.index] for seat in seats)
    return Reservation(ask, frozenset(seat.index for seat in seats), start_s)


def _free_at(ask: Ask, seat: Seat) -> float | None:
    """When enough of a seat's jobs are expected to have ended for a newcomer."""
    if not seat.residents:
        return float("-inf")
    if any(one.ends_s is None for one in seat.residents):
        return None
    ends = sorted(seat.residents, key=lambda one: one.ends_s or 0.0)
    if not ask.share or ask.need_mib is None or seat.whole or not seat.pool:
        return ends[-1].ends_s
    free_mib = seat.usable_mib - seat.reserved_mib
    for one in ends:
        free_mib += one.ask.need_mib or 0
        if free_mib >= ask.need_mib:
            return one.ends_s
    return ends[-1].ends_s


def _leaves_room(ask: Ask, seat: Seat, held: Reservation, view: View) -> bool:
    """Whether a job may start on a seat before the one that waits for it."""
    if seat.index not in held.seats:
        return True
    if ask.run_s is not None and view.now_s + ask.run_s <= held.start_s:
        return True
    first = held.ask
    if not first.share or not ask.share or first.need_mib is None or ask.need_mib is None:
        return False
    staying = sum(
        one.ask.need_mib or seat.usable_mib
        for one in seat.residents
        if one.ends_s is None or one.ends_s > held.start_s
    )
    return staying + ask.need_mib + first.need_mib <= seat.usable_mib
