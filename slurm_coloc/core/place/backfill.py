# SPDX-License-Identifier: Apache-2.0
"""Backfill: where the first waiting job is expected to start, and which may start before it.

As in EASY backfill, a later job may start first if, by plan, the first one starts no later for it.
The plan is made from the expected ends at present speeds. On a shared GPU a newcomer slows down the
jobs that the first one waits for, so it may join them only if they still end in time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from slurm_coloc.core.place.free_at import alone, fits, free_at
from slurm_coloc.core.place.gpu_slot import INF, GpuSlot, Host, PlaceRequest, Resident
from slurm_coloc.core.place.placing import Conditions, View
from slurm_coloc.core.place.speeds import expected_speeds

#: seconds by which a newcomer may delay the first job: rounding only
SLACK_S = 1e-3


@dataclass(frozen=True, slots=True)
class Reservation:
    """Where and when a waiting job is expected to start.

    ``slots``: those reserved for it, by index. ``start_s``: infinity where that is not known.
    ``awaited``: ids of the jobs that must end before. ``closed``: slots, by index, that are not
    open to every job until then. ``spare``: by number of a node, the (CPUs, MiB) that are left
    beside the job at that time; nodes whose CPUs do not count are missing.
    """

    request: PlaceRequest
    slots: frozenset[int]
    start_s: float
    awaited: frozenset[int]
    closed: frozenset[int]
    spare: dict[int, tuple[float, float]]

    def leaves_room(
        self, request: PlaceRequest, slot: GpuSlot, view: View, idle_only: bool = False
    ) -> bool:
        """Whether a job may start on a slot before the one that waits for it."""
        if slot.index not in self.closed:
            return True
        if not self._in_time(request, slot, view):
            return False
        if self._over_before(request, slot, view, idle_only):
            return True
        spare = self.spare.get(slot.node)
        if spare is not None and (request.cpus > spare[0] or request.host_mib > spare[1]):
            return False
        return slot.index not in self.slots or self._beside(
            request, slot, view.conditions, idle_only
        )

    def _in_time(self, request: PlaceRequest, slot: GpuSlot, view: View) -> bool:
        """Whether the awaited jobs would still end in time with a newcomer that slows them."""
        if not any(one.request.id in self.awaited for one in slot.residents):
            return True
        if self.start_s == INF:
            return False
        before = expected_speeds(slot, view.interference)
        after = expected_speeds(slot, view.interference, request)
        return all(
            one.ends_s is not None
            and view.now_s + (one.ends_s - view.now_s) * fast / slow <= self.start_s + SLACK_S
            for one, fast, slow in zip(slot.residents, before, after, strict=False)
            if one.request.id in self.awaited
        )

    def _over_before(
        self, request: PlaceRequest, slot: GpuSlot, view: View, idle_only: bool
    ) -> bool:
        """Whether the newcomer is expected to end before the first job starts."""
        if request.run_s is None or self.start_s == INF:
            return False
        if request.gpus > 1 and not (idle_only or not request.share or request.idle_only):
            return False  # how fast it would be is decided on its other slots too
        speed = expected_speeds(slot, view.interference, request)[-1]
        return view.now_s + request.run_s / speed <= self.start_s

    def _beside(
        self, request: PlaceRequest, slot: GpuSlot, rules: Conditions, idle_only: bool
    ) -> bool:
        """Whether the first job fits on the slot beside those that stay and the newcomer."""
        first = self.request
        if idle_only or alone(first) or not request.share:
            return False
        staying = [one for one in slot.residents if one.ends_s is None or one.ends_s > self.start_s]
        return fits(first, slot, [*staying, Resident(request)], rules)


@dataclass(frozen=True, slots=True)
class Offer:
    """When a node, or all of them, could hold a job: lower is better.

    ``idle``: the negative number of its idle slots; ``slots``: the first free one first.
    """

    start_s: float
    idle: int
    slots: tuple[GpuSlot, ...]

    def key(self) -> tuple[float, int, int]:
        """The earliest start comes first, then most idle slots, then the first slot."""
        return self.start_s, self.idle, self.slots[0].index


def reservation(request: PlaceRequest, view: View, idle_only: bool = False) -> Reservation | None:
    """The reservation of a job that cannot start now; None where it could never start.

    It is on the node where the job could start first. Where that time is not known, a job of one
    GPU has no reservation, as in Slurm one that cannot start within bf_window: it takes the next
    GPU that becomes free anywhere. A job of several GPUs would never find them idle together, so
    they are reserved for it.
    """
    lane, known = view.pooled and not request.share, view.reservations
    if known is not None and lane in known and known[lane][:2] == (request, idle_only):
        found: Reservation | None = known[lane][2]
        return found
    best = _best_offer(request, view, idle_only)
    unknown = best is None or (request.gpus == 1 and best.start_s == INF)
    found = None if best is None or unknown else _reserved(request, best, view)
    if known is not None:
        known[lane] = (request, idle_only, found)
    return found


def _best_offer(request: PlaceRequest, view: View, idle_only: bool) -> Offer | None:
    """The earliest of all nodes' offers, which are cached until something changes on a node."""
    if request.gpus > view.largest_node():
        return _offer(request, view.slots, view, idle_only)
    lane = view.pooled and not request.share
    known: dict[int, tuple[int, Offer | None]] = {}
    last = view.plans.get(lane)
    if last is not None and last[0] is request and last[1] == idle_only:
        known = last[2]
    else:
        view.plans[lane] = (request, idle_only, known)
    best = None
    for node, slots in view.nodes().items():
        host = slots[0].host
        version, offer = known.get(node, (-1, None))
        if host is None or version != host.version:
            offer = _offer(request, slots, view, idle_only)
            known[node] = (-1 if host is None else host.version, offer)
        if offer is not None and (best is None or offer.key() < best.key()):
            best = offer
    return best


def _offer(
    request: PlaceRequest, slots: Sequence[GpuSlot], view: View, idle_only: bool
) -> Offer | None:
    free = []
    for slot in slots:
        when = free_at(request, slot, view, idle_only)
        if when is not None:
            free.append((when, slot.index, slot))
    if len(free) < request.gpus:
        return None
    free.sort()
    taken = free[: request.gpus]
    if request.gpus > 1 and any(one[2].part for one in free):
        taken = _apart(request, free)
        if len(taken) < request.gpus:
            return None
    chosen = tuple(one[2] for one in taken)
    when = max(taken[-1][0], _hosts_free_at(request, chosen, view))
    return Offer(when, -sum(one[0] == -INF for one in free), chosen)


def _apart(
    request: PlaceRequest, group: Sequence[tuple[float, int, GpuSlot]]
) -> list[tuple[float, int, GpuSlot]]:
    """The first slots of a group that are on different GPUs."""
    out: list[tuple[float, int, GpuSlot]] = []
    for one in group:
        if one[2].part and any(one[2].gpu == other[2].gpu for other in out):
            continue
        out.append(one)
        if len(out) == request.gpus:
            break
    return out


def _reserved(request: PlaceRequest, offer: Offer, view: View) -> Reservation:
    slots, start_s = offer.slots, offer.start_s
    indexes = frozenset(slot.index for slot in slots)
    awaited = frozenset(
        one.request.id
        for slot in slots
        for one in slot.residents
        if alone(request) or (one.ends_s is not None and one.ends_s <= start_s)
    )
    spare: dict[int, tuple[float, float]] = {}
    there: list[GpuSlot] = []  # all slots of these nodes
    for host, gpus in _hosts(slots).items():
        there += view.on_host(host)
        cpus, mib = host.cpus, host.host_mib
        for ends_s, more_cpus, more_mib in _host_ends(host, view):
            if ends_s <= start_s:
                cpus, mib = cpus + more_cpus, mib + more_mib
        part = gpus / request.gpus
        spare[host.node] = (cpus - request.cpus * part, mib - request.host_mib * part)
    awaited |= {  # the jobs that are to free their CPUs in time
        one.request.id
        for slot in there
        for one in slot.residents
        if one.ends_s is not None and one.ends_s <= start_s
    }
    closed = {*indexes, *(slot.index for slot in there)}
    if spare or any(one.request.gpus > 1 for slot in slots for one in slot.residents):
        closed.update(slot.index for slot in view.with_jobs(awaited))
    return Reservation(request, indexes, start_s, awaited, frozenset(closed), spare)


def _hosts(slots: Sequence[GpuSlot]) -> dict[Host, int]:
    """The number of slots on each node whose CPUs and memory can run short."""
    out: dict[Host, int] = {}
    for slot in slots:
        if slot.host is not None and slot.host.limited:
            out[slot.host] = out.get(slot.host, 0) + 1
    return out


def _hosts_free_at(request: PlaceRequest, slots: Sequence[GpuSlot], view: View) -> float:
    """When the CPUs and memory of the slots' nodes are expected to suffice; minus infinity: now."""
    latest = -INF
    for host, gpus in _hosts(slots).items():
        part = gpus / request.gpus
        cpus, mib, when = (
            host.cpus - request.cpus * part,
            host.host_mib - request.host_mib * part,
            -INF,
        )
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
            one.request.cpus / one.request.gpus,
            one.request.host_mib / one.request.gpus,
        )
        for slot in view.on_host(host)
        for one in slot.residents
    )
