# SPDX-License-Identifier: Apache-2.0
"""Backfill: where the first waiting job is expected to start, and who may start before it.

As in EASY backfill: a later job may go first if, by plan, the first one starts no later for it. The
plan is what is known: expected ends at present speeds. On shared GPUs a newcomer would slow down
the jobs that the first one waits for, so it may join them only if they end in time all the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from slurm_coloc.core.place.free_at import alone, fits, free_at
from slurm_coloc.core.place.gpu_slot import INF, Host
from slurm_coloc.core.place.placing import (
    Conditions,
    GpuSlot,
    PlaceRequest,
    Resident,
    View,
)
from slurm_coloc.core.place.speeds import expected_speeds

#: seconds that a first job may start later for a newcomer: rounding, no more
SLACK_S = 1e-3


@dataclass(frozen=True, slots=True)
class Reservation:
    """Where and when a waiting job is expected to start.

    ``seats``: those it is to have, by index. ``start_s``: infinity where nobody knows when they
    are free. ``awaited``: ids of the jobs that must end before. ``closed``: seats, by index, that
    are not open to everybody until then. ``cpus`` and ``host_mib``: of each node, by number, what
    is left beside the job at that time; nodes whose CPUs do not count are not there.
    """

    ask: PlaceRequest
    seats: frozenset[int]
    start_s: float
    awaited: frozenset[int]
    closed: frozenset[int]
    spare: dict[int, tuple[float, float]]

    def leaves_room(
        self, ask: PlaceRequest, seat: GpuSlot, view: View, idle_only: bool = False
    ) -> bool:
        """Whether a job may start on a seat before the one that waits for it."""
        if seat.index not in self.closed:
            return True
        if not self._in_time(ask, seat, view):
            return False
        if self._over_before(ask, seat, view, idle_only):
            return True
        spare = self.spare.get(seat.node)
        if spare is not None and (ask.cpus > spare[0] or ask.host_mib > spare[1]):
            return False
        return seat.index not in self.seats or self._beside(ask, seat, view.conditions, idle_only)

    def _in_time(self, ask: PlaceRequest, seat: GpuSlot, view: View) -> bool:
        """Whether the jobs that are waited for would end in time although a newcomer slows them."""
        if not any(one.ask.id in self.awaited for one in seat.residents):
            return True
        if self.start_s == INF:
            return False
        before = expected_speeds(seat, view.interference)
        after = expected_speeds(seat, view.interference, ask)
        return all(
            one.ends_s is not None
            and view.now_s + (one.ends_s - view.now_s) * fast / slow <= self.start_s + SLACK_S
            for one, fast, slow in zip(seat.residents, before, after, strict=False)
            if one.ask.id in self.awaited
        )

    def _over_before(self, ask: PlaceRequest, seat: GpuSlot, view: View, idle_only: bool) -> bool:
        """Whether it is expected to have ended when the first one starts."""
        if ask.run_s is None or self.start_s == INF:
            return False
        if ask.gpus > 1 and not (idle_only or not ask.share or ask.idle_only):
            return False  # how fast it would be is decided on its other seats too
        speed = expected_speeds(seat, view.interference, ask)[-1]
        return view.now_s + ask.run_s / speed <= self.start_s

    def _beside(self, ask: PlaceRequest, seat: GpuSlot, rules: Conditions, idle_only: bool) -> bool:
        """Whether the first one fits on the seat beside those that stay and the newcomer."""
        first = self.ask
        if idle_only or alone(first) or not ask.share:
            return False
        staying = [one for one in seat.residents if one.ends_s is None or one.ends_s > self.start_s]
        return fits(first, seat, [*staying, Resident(ask)], rules)


@dataclass(frozen=True, slots=True)
class Offer:
    """When a node, or all of them, could hold a job: lower is better.

    ``start_s``; ``idle``: the number of its idle seats, negative; ``seats``: those that are free
    first.
    """

    start_s: float
    idle: int
    seats: tuple[GpuSlot, ...]

    def key(self) -> tuple[float, int, int]:
        """The earliest; of several, the one with most idle seats; then the first."""
        return self.start_s, self.idle, self.seats[0].index


def reservation(ask: PlaceRequest, view: View, idle_only: bool = False) -> Reservation | None:
    """What is kept for a job that cannot start now; None where it could never start.

    The node where it could start first. Where nobody knows when that is, a job of one GPU has no
    reservation, as in Slurm one that cannot start within bf_window: the next end anywhere is its
    chance. A job of several GPUs would never find them idle together, so for it they are kept.
    """
    best = _best_offer(ask, view, idle_only)
    if best is None or (ask.gpus == 1 and best.start_s == INF):
        return None
    return _kept(ask, best, view)


def _best_offer(ask: PlaceRequest, view: View, idle_only: bool) -> Offer | None:
    """The first of all nodes' offers. They are remembered until something changes on a node."""
    if ask.gpus > view.largest_node():
        return _offer(ask, view.seats, view, idle_only)
    lane = view.pooled and not ask.share
    known: dict[int, tuple[int, Offer | None]] = {}
    last = view.plans.get(lane)
    if last is not None and last[0] is ask and last[1] == idle_only:
        known = last[2]
    else:
        view.plans[lane] = (ask, idle_only, known)
    best = None
    for node, seats in view.nodes().items():
        host = seats[0].host
        version, offer = known.get(node, (-1, None))
        if host is None or version != host.version:
            offer = _offer(ask, seats, view, idle_only)
            known[node] = (-1 if host is None else host.version, offer)
        if offer is not None and (best is None or offer.key() < best.key()):
            best = offer
    return best


def _offer(
    ask: PlaceRequest, seats: Sequence[GpuSlot], view: View, idle_only: bool
) -> Offer | None:
    free = []
    for seat in seats:
        when = free_at(ask, seat, view, idle_only)
        if when is not None:
            free.append((when, seat.index, seat))
    if len(free) < ask.gpus:
        return None
    free.sort()
    taken = free[: ask.gpus]
    if ask.gpus > 1 and any(one[2].part for one in free):
        taken = _apart(ask, free)
        if len(taken) < ask.gpus:
            return None
    chosen = tuple(one[2] for one in taken)
    when = max(taken[-1][0], _hosts_free_at(ask, chosen, view))
    return Offer(when, -sum(one[0] == -INF for one in free), chosen)


def _apart(
    ask: PlaceRequest, group: Sequence[tuple[float, int, GpuSlot]]
) -> list[tuple[float, int, GpuSlot]]:
    """The first seats of a group that are on different GPUs."""
    out: list[tuple[float, int, GpuSlot]] = []
    for one in group:
        if one[2].part and any(one[2].gpu == other[2].gpu for other in out):
            continue
        out.append(one)
        if len(out) == ask.gpus:
            break
    return out


def _kept(ask: PlaceRequest, offer: Offer, view: View) -> Reservation:
    seats, start_s = offer.seats, offer.start_s
    indexes = frozenset(seat.index for seat in seats)
    awaited = frozenset(
        one.ask.id
        for seat in seats
        for one in seat.residents
        if alone(ask) or (one.ends_s is not None and one.ends_s <= start_s)
    )
    spare: dict[int, tuple[float, float]] = {}
    for host, gpus in _hosts(seats).items():
        cpus, mib = host.cpus, host.host_mib
        for ends_s, more_cpus, more_mib in _host_ends(host, view):
            if ends_s <= start_s:
                cpus, mib = cpus + more_cpus, mib + more_mib
        part = gpus / ask.gpus
        spare[host.node] = (cpus - ask.cpus * part, mib - ask.host_mib * part)
    closed = set(indexes)
    if spare:  # whoever is to leave its CPUs in time
        awaited |= {
            one.ask.id
            for seat in view.seats
            if seat.node in spare
            for one in seat.residents
            if one.ends_s is not None and one.ends_s <= start_s
        }
    if spare or any(one.ask.gpus > 1 for seat in seats for one in seat.residents):
        for seat in view.seats:
            if seat.node in spare or any(one.ask.id in awaited for one in seat.residents):
                closed.add(seat.index)
    return Reservation(ask, indexes, start_s, awaited, frozenset(closed), spare)


def _hosts(seats: Sequence[GpuSlot]) -> dict[Host, int]:
    """How many of the seats are on each node whose CPUs and memory can run short."""
    out: dict[Host, int] = {}
    for seat in seats:
        if seat.host is not None and seat.host.limited:
            out[seat.host] = out.get(seat.host, 0) + 1
    return out


def _hosts_free_at(ask: PlaceRequest, seats: Sequence[GpuSlot], view: View) -> float:
    """When CPUs and memory of the seats' nodes are expected to suffice; minus infinity: now."""
    latest = -INF
    for host, gpus in _hosts(seats).items():
        part = gpus / ask.gpus
        cpus, mib, when = host.cpus - ask.cpus * part, host.host_mib - ask.host_mib * part, -INF
        for ends_s, more_cpus, more_mib in _host_ends(host, view):
            if cpus >= -1e-9 and mib >= -1e-6:
                break
            cpus, mib, when = cpus + more_cpus, mib + more_mib, ends_s
        latest = max(latest, when)
    return latest


def _host_ends(host: Host, view: View) -> list[tuple[float, float, float]]:
    """(end, CPUs, MiB) of each job's part on a node, in the order of the expected ends."""
    return sorted(
        (
            INF if one.ends_s is None else one.ends_s,
            one.ask.cpus / one.ask.gpus,
            one.ask.host_mib / one.ask.gpus,
        )
        for seat in view.seats
        if seat.host is host
        for one in seat.residents
    )
