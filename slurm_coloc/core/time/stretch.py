# SPDX-License-Identifier: Apache-2.0
"""Time limits of jobs that share a GPU: how far one is stretched, and when.

A time limit is meant for a job alone on its GPU. What a run lost beside others is given back to it:
its limit becomes the original plus the seconds lost so far. Backfill has planned the jobs behind it
by the limit that it saw, so a limit is touched late, when little of it is left, and only by what is
lost already or will be within one margin: neighbours that leave then have cost nobody anything.
Each time the part that is left shrinks, so there are few steps (tests/unit/core/test_stretch.py
bounds them). Slurm checks for jobs that are over their limit about twice a minute, and counts
limits in whole minutes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, floor

MINUTE_S = 60.0
# The margin of a short limit is this part of it, so that it too is stretched late.
MARGIN_PART = 0.25


@dataclass(frozen=True, slots=True)
class Rules:
    """[slowdown] as far as it decides. ``max_factor``: never longer than so many times the
    original; ``margin_s``: it is touched when so little is left of it."""

    max_factor: float = 4.0
    margin_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Timed:
    """A running job. ``base_s``: its limit as its owner gave it; ``limit_s``: as it stands;
    ``lost_s``: what it lost beside others so far; ``speed``: its present one (1 = alone)."""

    start_s: float
    base_s: float
    limit_s: float
    lost_s: float
    speed: float = 1.0


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What a limit must not pass, in seconds from the job's start, and why."""

    limit_s: float
    why: str


@dataclass(frozen=True, slots=True)
class Stretch:
    """``minutes``: the new limit, None where it stays; ``why``: the ceiling that was met, ""."""

    minutes: int | None
    why: str = ""


def margin_s(base_s: float, rules: Rules) -> float:
    """Seconds before its end at which a limit is judged."""
    return min(rules.margin_s, base_s * MARGIN_PART)


def due_s(job: Timed, rules: Rules) -> float:
    """When (Unix seconds) the limit is judged next."""
    return job.start_s + job.limit_s - margin_s(job.base_s, rules)


def wanted_s(job: Timed, now_s: float, rules: Rules) -> float:
    """The limit that the job is to have, whatever the site allows: it is owed what it lost, and
    lent what it will lose next at its present speed, one margin at most."""
    left_s = job.base_s - (now_s - job.start_s - job.lost_s)  # of its work, alone
    ahead_s = max(0.0, left_s) * (1.0 / job.speed - 1.0)
    return job.base_s + job.lost_s + min(ahead_s, margin_s(job.base_s, rules))


def stretch(job: Timed, now_s: float, rules: Rules, ceilings: Iterable[Ceiling]) -> Stretch:
    """What becomes of a limit that is due. Never shorter than it stands."""
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
    """What a reservation of its node allows a job that began at ``start_s`` in the reservations
    ``own``; None where it is over."""
    if one.end_s is not None and one.end_s <= now_s:
        return None
    inside = one.name in own.split(",")
    until_s = one.end_s if inside else one.start_s
    if until_s is None:
        return None
    return Ceiling(max(0.0, until_s - start_s), f"reservation {one.name}")
