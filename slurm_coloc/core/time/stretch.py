# SPDX-License-Identifier: Apache-2.0
"""Time limits of jobs that share a GPU: by how much a limit is stretched, and when.

A time limit is meant for a job alone on its GPU. The time that a run lost beside others is given
back: its limit becomes the original plus the seconds lost so far. Backfill has planned the jobs
behind it by the limit that it saw, so a limit is changed late, when little of it is left, and only
by what is lost already or will be within one margin: neighbours that leave before have cost
nothing. Each stretch is smaller than the one before, so there are few
(tests/unit/core/test_stretch.py bounds them). Slurm checks for jobs over their limit about twice a
minute, and counts limits in whole minutes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, floor

MINUTE_S = 60.0
# The margin of a short limit is this part of it, so that it too is stretched late.
MARGIN_PART = 0.25


@dataclass(frozen=True, slots=True)
class Rules:
    """The part of [slowdown] that decides. ``max_factor``: the longest limit over the original;
    ``margin_s``: a limit is changed when so little of it is left."""

    max_factor: float = 4.0
    margin_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Timed:
    """A running job. ``base_s``: its owner's limit; ``limit_s``: its present one; ``lost_s``: lost
    beside others so far; ``speed``: its present one (1 = alone)."""

    start_s: float
    base_s: float
    limit_s: float
    lost_s: float
    speed: float = 1.0


@dataclass(frozen=True, slots=True)
class Ceiling:
    """An upper bound of a limit, in seconds from the job's start, and why."""

    limit_s: float
    why: str


@dataclass(frozen=True, slots=True)
class Stretch:
    """``minutes``: the new limit, None where it stays; ``why``: the ceiling that was met, or ""."""

    minutes: int | None
    why: str = ""


def margin_s(base_s: float, rules: Rules) -> float:
    """Seconds before its end at which a limit is judged."""
    return min(rules.margin_s, base_s * MARGIN_PART)


def due_s(job: Timed, rules: Rules) -> float:
    """When (Unix seconds) the limit is judged next."""
    return job.start_s + job.limit_s - margin_s(job.base_s, rules)


def wanted_s(job: Timed, now_s: float, rules: Rules) -> float:
    """The limit that the job needs, whatever the site allows: it gets what it lost, and in advance
    what it will lose at its present speed, one margin at most."""
    left_s = job.base_s - (now_s - job.start_s - job.lost_s)  # of its work, alone
    ahead_s = max(0.0, left_s) * (1.0 / job.speed - 1.0)
    return job.base_s + job.lost_s + min(ahead_s, margin_s(job.base_s, rules))


def stretch(job: Timed, now_s: float, rules: Rules, ceilings: Iterable[Ceiling]) -> Stretch:
    """The new limit of a job that is due. Never shorter than the present one."""
    own = Ceiling(
        ceil(job.base_s * rules.max_factor / MINUTE_S) * MINUTE_S,
        f"slowdown.max_factor {rules.max_factor:g}",
    )
    lowest = min([own, *ceilings], key=lambda one: one.limit_s)
    wanted = ceil(wanted_s(job, now_s, rules) / MINUTE_S)
    now = floor(job.limit_s / MINUTE_S)
    if wanted <= now:
        return Stretch(None)
    allowed = floor(lowest.limit_s / MINUTE_S)
    if allowed <= now:
        return Stretch(None, lowest.why)
    return Stretch(min(wanted, allowed), lowest.why if wanted > allowed else "")


@dataclass(frozen=True, slots=True)
class Reserved:
    """A reservation as Slurm shows it; ``nodes`` in Slurm's notation, Unix seconds."""

    name: str
    nodes: str
    start_s: float | None
    end_s: float | None


def reserved_ceiling(one: Reserved, own: str, start_s: float, now_s: float) -> Ceiling | None:
    """The ceiling by a reservation of its node for a job that began at ``start_s`` in the
    reservations ``own``; None where the reservation is over."""
    if one.end_s is not None and one.end_s <= now_s:
        return None
    inside = one.name in own.split(",")
    until_s = one.end_s if inside else one.start_s
    if until_s is None:
        return None
    return Ceiling(max(0.0, until_s - start_s), f"reservation {one.name}")
