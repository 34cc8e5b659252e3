# SPDX-License-Identifier: Apache-2.0
"""Placing jobs on GPUs: what a policy sees, what it answers, and the conditions of sharing.

The simulator and colocd fill the same objects, the one from its model and the other from Slurm and
telemetry, so a policy that was settled by simulation runs unchanged on a cluster.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from slurm_coloc.core.activity import Activity
from slurm_coloc.core.interference import REFERENCE, Interference

ShareWith = Literal["user", "account", "anyone"]


@dataclass(frozen=True, slots=True)
class Ask:
    """A job that waits: what it asks for and what is expected of it.

    ``gpus``: GPUs, of one node where one has so many. ``need_mib``: what is reserved on each of
    them; None: no estimate. ``activity``: expected alone. ``run_s``: seconds that it is expected to
    run alone. ``share``: False for a job that gets whole GPUs. ``idle_only``: it starts on idle
    GPUs; others may join it there. ``max_slowdown``: its time beside others over its time alone
    that it must not pass.
    """

    id: int
    gpus: int
    need_mib: int | None
    activity: Activity | None
    submit_s: float
    run_s: float | None = None
    user: str = ""
    account: str = ""
    share: bool = True
    idle_only: bool = False
    max_slowdown: float | None = None


@dataclass(slots=True)
class Resident:
    """A job on a GPU. ``ends_s``: when it is expected to end; ``left_s``: seconds alone to go."""

    ask: Ask
    ends_s: float | None = None
    left_s: float | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """What telemetry said last of a GPU: MiB free, and activities over its window (ratios)."""

    free_mib: int
    smact: float = 0.0
    smocc: float = 0.0
    drama: float = 0.0


@dataclass(slots=True, eq=False)
class Seat:
    """One GPU, or one MIG instance, that jobs can be put on.

    ``usable_mib``: what can be reserved. ``fraction``: of the GPU's SMs. ``pool``: whether jobs may
    share it. ``whole``: whether a resident has it for itself. ``settled``: False while a job that
    was just launched does not show in telemetry yet.
    """

    index: int
    node: int
    kind: str
    usable_mib: int
    method: str = "mps"
    fraction: float = 1.0
    pool: bool = True
    residents: list[Resident] = field(default_factory=list)
    reserved_mib: int = 0
    smact: float = 0.0
    whole: bool = False
    settled: bool = True
    measured: Measured | None = None

    @property
    def idle(self) -> bool:
        """No job is on it."""
        return not self.residents

    @property
    def free_mib(self) -> int:
        """MiB free: as telemetry shows it, or by the plan where it shows nothing."""
        if self.measured is not None:
            return self.measured.free_mib
        return self.usable_mib - self.reserved_mib

    @property
    def shown_smact(self) -> float:
        """SM activity as telemetry shows it, or the sum of what is expected."""
        return self.smact if self.measured is None else self.measured.smact


@dataclass(frozen=True, slots=True)
class Conditions:
    """When a job may join others on a GPU.

    ``by_plan``: its need fits beside what is reserved. ``margin_mib``: telemetry shows its need and
    so much more as free; None: telemetry is not asked. ``free_mib``: telemetry shows at least so
    much free, whatever the need (2 or 5 GB in the thesis). ``smact_at_most``: measured SM activity
    (ratio; 0.75 to 0.85 in the thesis), which refuses only together with ``smocc_at_least`` or
    ``drama_at_least`` where these are set (CARMA's later gate). ``budget``: bound on the sum of
    solo SM activities. ``jobs``: most jobs on a GPU. ``idle_first``: while a GPU is idle it is used
    before any is shared.
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

    @property
    def telemetry(self) -> bool:
        """Whether a decision depends on what was measured."""
        given = (self.margin_mib, self.free_mib, self.smact_at_most)
        return any(value is not None for value in given)


@dataclass(slots=True)
class View:
    """What a policy decides on: the queue in the order of priority, and every seat.

    ``turn``: index of the seat after the last one that was used. ``depth``: how many waiting jobs a
    discipline may look at.
    """

    now_s: float
    queue: Sequence[Ask]
    seats: Sequence[Seat]
    conditions: Conditions = Conditions()
    interference: Interference = REFERENCE
    turn: int = 0
    depth: int = 1

    def open_to(self, ask: Ask) -> Sequence[Seat]:
        """Seats worth a look: those that changed since the job was refused. Here: all."""
        return self.seats

    def refuse(self, ask: Ask) -> None:
        """Note that nothing admits the job now."""


@dataclass(frozen=True, slots=True)
class Start:
    """An answer: this job now, on these seats."""

    ask: Ask
    seats: tuple[Seat, ...]


class Policy(Protocol):
    """Decides which waiting job starts next, and where."""

    name: str

    def next(self, view: View) -> Start | None:
        """The next start, or None when nothing is to start now. Asked again after each start."""


def admits(ask: Ask, seat: Seat, conditions: Conditions, interference: Interference) -> bool:
    """Whether a job may be put on a seat now."""
    if not seat.residents:
        return ask.need_mib is None or not ask.share or ask.need_mib <= seat.usable_mib
    if seat.whole or not ask.share or ask.idle_only or not seat.pool:
        return False
    if len(seat.residents) >= conditions.jobs:
        return False
    need = ask.need_mib
    if conditions.by_plan and (need is None or seat.reserved_mib + need > seat.usable_mib):
        return False
    if conditions.budget is not None and not _within_budget(ask, seat, conditions.budget):
        return False
    if conditions.telemetry and not _measured_allows(ask, seat, conditions):
        return False
    return may_share(ask, seat, conditions.share_with) and _bearable(
        ask, seat, conditions, interference
    )


def may_share(ask: Ask, seat: Seat, share_with: ShareWith) -> bool:
    """Whether the owners of a seat's jobs and of the newcomer may share a GPU."""
    if share_with == "anyone":
        return True
    if share_with == "account":
        return all(one.ask.account == ask.account for one in seat.residents)
    return all(one.ask.user == ask.user for one in seat.residents)


def _within_budget(ask: Ask, seat: Seat, budget: float) -> bool:
    # A job whose activity is not known counts as one that keeps the GPU busy.
    smact = 1.0 if ask.activity is None else ask.activity.smact
    return seat.smact + smact <= budget + 1e-9


def _measured_allows(ask: Ask, seat: Seat, conditions: Conditions) -> bool:
    shown = seat.measured
    if shown is None or not seat.settled:
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


def _bearable(ask: Ask, seat: Seat, conditions: Conditions, interference: Interference) -> bool:
    """Whether nobody on the seat would be slowed down beyond his bound."""
    bounds = [one.ask.max_slowdown for one in seat.residents] + [ask.max_slowdown]
    if conditions.max_slowdown is None and not any(bounds):
        return True
    speeds = interference.speeds(activities(seat, ask), seat.method)
    highest = conditions.max_slowdown or float("inf")
    return all(
        1.0 / speed <= min(highest, bound or highest) + 1e-9
        for speed, bound in zip(speeds, bounds, strict=True)
    )


BUSY = Activity(1.0)


def activities(seat: Seat, *asks: Ask) -> list[Activity]:
    """Expected activities of a seat's jobs and of newcomers; an unknown one counts as busy."""
    return [one.ask.activity or BUSY for one in seat.residents] + [
        ask.activity or BUSY for ask in asks
    ]
