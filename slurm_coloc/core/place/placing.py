# SPDX-License-Identifier: Apache-2.0
"""Placing jobs on GPUs: what a policy sees, what it answers, and the conditions of sharing.

The simulator and colocd fill the same objects, the one from its model and the other from Slurm and
telemetry, so a policy that was settled by simulation runs unchanged on a cluster.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from slurm_coloc.core.place.gpu_slot import INF, GpuSlot, Host, Measured, PlaceRequest, Resident
from slurm_coloc.core.place.interference import REFERENCE, Interference
from slurm_coloc.core.place.speeds import BUSY, activities, expected_speeds

__all__ = [
    "BUSY",
    "Conditions",
    "GpuSlot",
    "Host",
    "Measured",
    "PlaceRequest",
    "Policy",
    "Resident",
    "ShareWith",
    "Start",
    "View",
    "activities",
    "admits",
    "admits_alone",
    "expected_speeds",
    "may_share",
    "may_share_with",
]

ShareWith = Literal["user", "account", "anyone"]


@dataclass(frozen=True, slots=True)
class Conditions:
    """When a job may join others on a GPU.

    ``by_plan``: its need fits beside what is reserved. ``margin_mib``: telemetry shows its need and
    so much more as free; None: telemetry is not asked. ``free_mib``: telemetry shows at least so
    much free, whatever the need (2 or 5 GB in the thesis). ``smact_at_most``: measured SM activity
    (ratio; 0.75 to 0.85 in the thesis), which refuses only together with ``smocc_at_least`` or
    ``drama_at_least`` where these are set (CARMA's later gate). ``budget``: bound on the sum of
    solo SM activities. ``jobs``: most jobs on a GPU. ``idle_first``: while a GPU is idle it is used
    before any is shared. ``keep_whole``: nobody joins others on a GPU that is kept for a job before
    it that waits for whole ones (core/place/reserved_gpus).
    """

    by_plan: bool = True
    margin_mib: int | None = None
    free_mib: int | None = None
    smact_at_most: float | None = None
    smocc_at_least: float | None = None
    drama_at_least: float | None = None
    budget: float | None = None
    jobs: int = 8
    share_with: ShareWith = "anyone"
    max_slowdown: float | None = None
    idle_first: bool = False
    keep_whole: bool = False
    #: whether bounds on the slowdown count (PlaceRequest.max_slowdown)
    bearable: bool = True
    #: whether a decision depends on what was measured
    telemetry: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        given = (self.margin_mib, self.free_mib, self.smact_at_most)
        object.__setattr__(self, "telemetry", any(value is not None for value in given))


@dataclass(slots=True)
class View:
    """What a policy decides on: the queue in the order of priority, and every seat.

    ``turn``: index of the seat after the last one that was used. ``depth``: how many waiting jobs a
    discipline may look at. ``pooled``: some GPUs are not shared, so jobs with whole GPUs and jobs
    that share have a reservation each. ``node_gpus`` and ``by_node``: counted when they are
    first asked for.
    ``plans``: what core/place/backfill remembers between two calls.
    """

    now_s: float
    queue: Sequence[PlaceRequest]
    seats: Sequence[GpuSlot]
    conditions: Conditions = Conditions()
    interference: Interference = REFERENCE
    turn: int = 0
    depth: int = 1
    pooled: bool = False
    node_gpus: int = 0
    by_node: dict[int, list[GpuSlot]] = field(default_factory=dict)
    plans: dict[bool, Any] = field(default_factory=dict)

    def open_to(self, ask: PlaceRequest) -> Sequence[GpuSlot]:
        """Seats worth a look: those that changed since the job was refused. Here: all."""
        return self.seats

    def refuse(self, ask: PlaceRequest) -> None:
        """Note that nothing admits the job now."""

    def hold(
        self,
        ids: Collection[int],
        seats: Collection[int],
        until_s: float,
        alone: Collection[int] = (),
    ) -> None:
        """Note which seats are kept for the jobs that come first, and until when; ``alone``: which
        of all nobody may join."""

    def nodes(self) -> Mapping[int, Sequence[GpuSlot]]:
        """The seats of each node."""
        if not self.by_node:
            for seat in self.seats:
                self.by_node.setdefault(seat.node, []).append(seat)
        return self.by_node

    def largest_node(self) -> int:
        """GPUs of the largest node."""
        if not self.node_gpus:
            found = [
                {seat.gpu if seat.gpu >= 0 else seat.index for seat in seats}
                for seats in self.nodes().values()
            ]
            self.node_gpus = max(map(len, found), default=1)
        return self.node_gpus


@dataclass(frozen=True, slots=True)
class Start:
    """An answer: this job now, on these seats."""

    ask: PlaceRequest
    seats: tuple[GpuSlot, ...]


class Policy(Protocol):
    """Decides which waiting job starts next, and where."""

    name: str

    def next(self, view: View) -> Start | None:
        """The next start, or None when nothing is to start now. Asked again after each start."""


def admits(
    ask: PlaceRequest, seat: GpuSlot, conditions: Conditions, interference: Interference
) -> bool:
    """Whether a job may be put on a seat now.

    Asked of every GPU for every job that arrives, so what is cheap and refuses often comes first.
    """
    if not seat.residents:
        return (seat.pool or not ask.share) and admits_alone(ask, seat)
    if seat.whole or not ask.share or ask.idle_only or not (seat.pool and seat.settled):
        return False
    if conditions.by_plan:
        need = ask.need_mib
        if need is None or seat.reserved_mib + need > seat.usable_mib:
            return False
    if len(seat.residents) >= conditions.jobs:
        return False
    if conditions.budget is not None:
        # A job whose activity is not known counts as one that keeps the GPU busy.
        smact = 1.0 if ask.activity is None else ask.activity.smact
        if seat.smact + smact > conditions.budget * seat.fraction + 1e-9:
            return False
    if conditions.share_with != "anyone" and not may_share(ask, seat, conditions.share_with):
        return False
    if seat.host is not None and not seat.host.holds(ask):
        return False
    if seat.method == "mig" and not _two_halves(ask, seat):
        return False
    if conditions.telemetry and not _measured_allows(ask, seat, conditions):
        return False
    return _bearable(ask, seat, conditions, interference)


def admits_alone(ask: PlaceRequest, seat: GpuSlot) -> bool:
    """Whether a job may have an idle seat for itself.

    A job whose need is larger than any GPU gets the largest ones all the same: nobody knows better.
    """
    if seat.residents or (seat.host is not None and not seat.host.holds(ask)):
        return False
    if not ask.share:
        return seat.for_whole and not seat.reserved_mib
    if ask.need_mib is None:
        return not seat.reserved_mib
    return seat.reserved_mib + ask.need_mib <= seat.usable_mib


def may_share(ask: PlaceRequest, seat: GpuSlot, share_with: ShareWith) -> bool:
    """Whether the owners of a seat's jobs and of the newcomer may share a GPU."""
    return may_share_with(ask, seat.residents, share_with)


def may_share_with(ask: PlaceRequest, residents: Iterable[Resident], share_with: ShareWith) -> bool:
    """Whether the owners of these jobs and of the newcomer may share a GPU."""
    if share_with == "anyone":
        return True
    if share_with == "account":
        return all(one.ask.account == ask.account for one in residents)
    return all(one.ask.user == ask.user for one in residents)


def _two_halves(ask: PlaceRequest, seat: GpuSlot) -> bool:
    """Whether a GPU that MIG cuts in two has its other half free; an instance has room for one."""
    return len(seat.residents) == 1 and seat.halves(ask) and seat.halves(seat.residents[0].ask)


def _measured_allows(ask: PlaceRequest, seat: GpuSlot, conditions: Conditions) -> bool:
    shown = seat.measured
    if shown is None:
        return False
    if conditions.margin_mib is not None and (
        ask.need_mib is None or shown.free_mib < ask.need_mib + conditions.margin_mib
    ):
        return False
    if conditions.free_mib is not None and shown.free_mib < conditions.free_mib:
        return False
    if conditions.smact_at_most is None or shown.smact <= conditions.smact_at_most:
        return True
    floors = (
        (shown.smocc, conditions.smocc_at_least),
        (shown.drama, conditions.drama_at_least),
    )
    known = [value >= floor for value, floor in floors if floor is not None]
    return bool(known) and not any(known)


def _bearable(
    ask: PlaceRequest, seat: GpuSlot, conditions: Conditions, interference: Interference
) -> bool:
    """Whether nobody on the seat would be slowed down beyond his bound."""
    highest = conditions.max_slowdown
    if not conditions.bearable:
        return True
    if highest is None and ask.max_slowdown is None:
        for one in seat.residents:
            if one.ask.max_slowdown is not None:
                break
        else:
            return True
    highest = INF if highest is None else highest
    bounds = [one.ask.max_slowdown for one in seat.residents] + [ask.max_slowdown]
    speeds = expected_speeds(seat, interference, ask)
    return all(
        1.0 / speed <= (highest if bound is None else min(highest, bound)) + 1e-9
        for speed, bound in zip(speeds, bounds, strict=True)
    )
