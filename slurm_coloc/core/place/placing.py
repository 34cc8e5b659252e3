# SPDX-License-Identifier: Apache-2.0
"""Placing jobs on GPUs: what a policy sees, what it answers, and the conditions of sharing.

The simulator fills these objects from its model, colocd from Slurm and telemetry, so a policy that
was chosen by simulation runs unchanged on a cluster.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal, Protocol

from slurm_coloc.core.place.gpu_slot import INF, GpuSlot, Host, PlaceRequest, Resident
from slurm_coloc.core.place.interference import REFERENCE, Interference
from slurm_coloc.core.place.speeds import expected_speeds

WAITING = 64  # jobs at the head of the queue of which one may wait for whole GPUs

ShareWith = Literal["user", "account", "anyone"]


@dataclass(frozen=True, slots=True)
class Conditions:
    """When a job may join others on a GPU.

    ``by_plan``: its need fits beside what is reserved. ``margin_mib``: telemetry shows its need and
    so much more as free; None: telemetry does not count. ``free_mib``: telemetry shows at least so
    much free, whatever the need (2 or 5 GB in the thesis). ``smact_at_most``: measured SM activity
    (ratio; 0.75 to 0.85 in the thesis); where ``smocc_at_least`` or ``drama_at_least`` are set, it
    refuses only together with them (CARMA's later gate). ``budget``: bound on the sum of solo SM
    activities. ``jobs``: most jobs on a GPU. ``idle_first``: idle GPUs are used before any is
    shared. ``keep_whole``: no job joins others on a GPU that is reserved for a job before it that
    waits for whole ones (core/place/reserved_gpus).
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
    #: whether slowdown limits count (PlaceRequest.max_slowdown)
    bearable: bool = True
    #: whether a decision depends on what was measured
    telemetry: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        given = (self.margin_mib, self.free_mib, self.smact_at_most)
        object.__setattr__(self, "telemetry", any(value is not None for value in given))


@dataclass(slots=True)
class View:
    """The input of a policy: the queue in the order of priority, and every slot.

    ``turn``: index of the slot after the last one that was used. ``depth``: how many waiting jobs a
    discipline may consider. ``pooled``: some GPUs are not shared, so jobs with whole GPUs and jobs
    that share have a reservation each. ``mixed``: a job has whole GPUs of those that are shared, or
    waits for them; None: as ``queue`` and ``slots`` show. ``node_gpus`` and ``by_node``: counted on
    first use, as ``by_host``, all slots by the number of their host. ``plans`` and
    ``reservations``: the caches of core/place/backfill; the second one is kept by who empties it at
    each start (None: by nobody). ``by_job``: slots by their jobs' ids (None: not known).
    """

    now_s: float
    queue: Sequence[PlaceRequest]
    slots: Sequence[GpuSlot]
    conditions: Conditions = Conditions()
    interference: Interference = REFERENCE
    turn: int = 0
    depth: int = 1
    pooled: bool = False
    mixed: bool | None = None
    node_gpus: int = 0
    by_node: dict[int, list[GpuSlot]] = field(default_factory=dict)
    by_host: dict[int, list[GpuSlot]] = field(default_factory=dict)
    plans: dict[bool, Any] = field(default_factory=dict)
    reservations: dict[bool, Any] | None = None
    by_job: Mapping[int, Sequence[GpuSlot]] | None = None

    def open_to(self, request: PlaceRequest) -> Sequence[GpuSlot]:
        """Slots that may admit a job; the simulator leaves out those unchanged since a refusal."""
        return self.slots

    def refuse(self, request: PlaceRequest) -> None:
        """Note that no slot admits the job now."""

    def hold(
        self,
        ids: Collection[int],
        slots: Collection[int],
        until_s: float,
        alone: Collection[int] = (),
    ) -> None:
        """Note which slots are reserved for the jobs that come first, and until when; ``alone``:
        the slots that no job may join."""

    def is_mixed(self) -> bool:
        """Whether somebody needs whole GPUs: an idle one is then worth more than a sharer gains."""
        if self.mixed is not None:
            return self.mixed
        return any(slot.whole and slot.pool for slot in self.slots) or any(
            not request.share for request in islice(self.queue, max(self.depth, WAITING))
        )

    def nodes(self) -> Mapping[int, Sequence[GpuSlot]]:
        """The slots of each node."""
        if not self.by_node:
            for slot in self.slots:
                self.by_node.setdefault(slot.node, []).append(slot)
        return self.by_node

    def on_host(self, host: Host) -> Sequence[GpuSlot]:
        """The slots of a host, whoever may get them."""
        if not self.by_host:
            for slot in self.slots:
                if slot.host is not None:
                    self.by_host.setdefault(slot.host.node, []).append(slot)
        return self.by_host.get(host.node, ())

    def with_jobs(self, ids: Collection[int]) -> Iterable[GpuSlot]:
        """The slots that have one of these jobs; some may come twice."""
        if self.by_job is not None:
            return (slot for one in ids for slot in self.by_job.get(one, ()))
        return (s for s in self.slots if any(one.request.id in ids for one in s.residents))

    def largest_node(self) -> int:
        """GPUs of the largest node."""
        if not self.node_gpus:
            found = [
                {slot.gpu if slot.gpu >= 0 else slot.index for slot in slots}
                for slots in self.nodes().values()
            ]
            self.node_gpus = max(map(len, found), default=1)
        return self.node_gpus


@dataclass(frozen=True, slots=True)
class Start:
    """An answer: this job now, on these slots."""

    request: PlaceRequest
    slots: tuple[GpuSlot, ...]


class Policy(Protocol):
    """Decides which waiting job starts next, and where."""

    name: str

    def next(self, view: View) -> Start | None:
        """The next start, or None. Called again after each start."""


def admits(
    request: PlaceRequest, slot: GpuSlot, conditions: Conditions, interference: Interference
) -> bool:
    """Whether a job may be put on a slot now.

    Called for every GPU and every job that arrives, so cheap checks that refuse often come first.
    """
    if not slot.residents:
        return (slot.pool or not request.share) and admits_alone(request, slot)
    if slot.whole or not request.share or request.idle_only or not (slot.pool and slot.settled):
        return False
    if conditions.by_plan:
        need = request.need_mib
        if need is None or slot.reserved_mib + need > slot.usable_mib:
            return False
    if len(slot.residents) >= conditions.jobs:
        return False
    if conditions.budget is not None:
        # A job whose activity is not known counts as one that keeps the GPU busy.
        smact = 1.0 if request.activity is None else request.activity.smact
        if slot.smact + smact > conditions.budget * slot.fraction + 1e-9:
            return False
    if conditions.share_with != "anyone" and not may_share(request, slot, conditions.share_with):
        return False
    if slot.host is not None and not slot.host.holds(request):
        return False
    if slot.method == "mig" and not _two_halves(request, slot):
        return False
    if conditions.telemetry and not _measured_allows(request, slot, conditions):
        return False
    return _bearable(request, slot, conditions, interference)


def admits_alone(request: PlaceRequest, slot: GpuSlot) -> bool:
    """Whether a job may have an idle slot for itself.

    A job whose need is larger than any GPU gets the largest one.
    """
    if slot.residents or (slot.host is not None and not slot.host.holds(request)):
        return False
    if not request.share:
        return slot.for_whole and not slot.reserved_mib
    if request.need_mib is None:
        return not slot.reserved_mib
    return slot.reserved_mib + request.need_mib <= slot.usable_mib


def may_share(request: PlaceRequest, slot: GpuSlot, share_with: ShareWith) -> bool:
    """Whether the owners of a slot's jobs and of the newcomer may share a GPU."""
    return may_share_with(request, slot.residents, share_with)


def may_share_with(
    request: PlaceRequest, residents: Iterable[Resident], share_with: ShareWith
) -> bool:
    """Whether the owners of these jobs and of the newcomer may share a GPU."""
    if share_with == "anyone":
        return True
    if share_with == "account":
        return all(one.request.account == request.account for one in residents)
    return all(one.request.user == request.user for one in residents)


def _two_halves(request: PlaceRequest, slot: GpuSlot) -> bool:
    """Whether a GPU that MIG cuts in two has its other half free."""
    return (
        len(slot.residents) == 1 and slot.halves(request) and slot.halves(slot.residents[0].request)
    )


def _measured_allows(request: PlaceRequest, slot: GpuSlot, conditions: Conditions) -> bool:
    shown = slot.measured
    if shown is None:
        return False
    if conditions.margin_mib is not None and (
        request.need_mib is None or shown.free_mib < request.need_mib + conditions.margin_mib
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
    request: PlaceRequest, slot: GpuSlot, conditions: Conditions, interference: Interference
) -> bool:
    """Whether no job on the slot would be slowed down beyond its limit."""
    highest = conditions.max_slowdown
    if not conditions.bearable:
        return True
    if highest is None and request.max_slowdown is None:
        for one in slot.residents:
            if one.request.max_slowdown is not None:
                break
        else:
            return True
    highest = INF if highest is None else highest
    bounds = [one.request.max_slowdown for one in slot.residents] + [request.max_slowdown]
    speeds = expected_speeds(slot, interference, request)
    return all(
        1.0 / speed <= (highest if bound is None else min(highest, bound)) + 1e-9
        for speed, bound in zip(speeds, bounds, strict=True)
    )
