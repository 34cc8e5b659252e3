# SPDX-License-Identifier: Apache-2.0
"""Small changes to a plan: what the local search tries next."""

from collections.abc import Sequence

from slurm_coloc.core.draw import Draw
from slurm_coloc.core.lines.plan import Plan, Spot

Change = list[tuple[int, Spot]]

#: shares of the moves; what is left changes beside how many jobs one may start. All shares and
#: widths here were tried on the two traces of the thesis.
MOVE, SWAP = 0.45, 0.40
#: how often a move stays near the job's place in the order, and how near (places of a line)
NEAR, WIDTH = 0.7, 3.0
#: beside how many jobs one may start: None is as many as fit
BESIDE = (None, None, 3, 2, 2, 1, 1, 0)


def propose(plan: Plan, job: int, draw: Draw) -> Change:
    """A change that concerns this job; empty where there is none of the kind that was drawn."""
    drawn = draw.part()
    if drawn < MOVE:
        return _move(plan, job, draw)
    if drawn < MOVE + SWAP:
        return _swap(plan, job, _partner(plan, job, draw))
    spot, beside = plan.spots[job], plan.problem.beside(job, draw.one_of(BESIDE))
    return [] if beside == spot.beside else [(job, Spot(spot.seats, spot.key, beside))]


def _move(plan: Plan, job: int, draw: Draw) -> Change:
    """To other seats, or to another place in the order, or both."""
    spot = plan.spots[job]
    seats = spot.seats
    if len(seats) == 1:
        seats = (draw.one_of(plan.problem.seats[job]),)
    elif draw.part() < 0.5:
        seats = plan.problem.some_seats(job, draw)
    line = [
        other
        for other in plan.lines[draw.one_of(seats)]
        if other != job and other < plan.problem.movable
    ]
    keys = [plan.spots[other].key for other in line]
    if draw.part() < NEAR:
        index = sum(key < spot.key for key in keys) + round(draw.normal(WIDTH))
        index = max(0, min(len(keys), index))
    else:
        index = draw.below(len(keys) + 1)
    return [(job, Spot(seats, _between(keys, index, draw), spot.beside))]


def _between(keys: Sequence[float], index: int, draw: Draw) -> float:
    """A key that comes before ``keys[index]`` and after the one before it."""
    if not keys:
        return draw.part()  # not the same for two jobs: equal keys would leave their order open
    low = keys[index - 1] if index > 0 else keys[0] - 1.0
    high = keys[index] if index < len(keys) else low + 1.0
    return low + (high - low) * (0.1 + 0.8 * draw.part())


def _partner(plan: Plan, job: int, draw: Draw) -> int:
    """A job to change places with: mostly one that starts at about the same time."""
    if draw.part() >= NEAR:
        return draw.below(plan.problem.movable)
    seat = draw.one_of(plan.problem.seats[job])
    line = plan.lines[seat]
    if not line:
        return job
    index = plan.index(seat, plan.spots[job].key) + round(draw.normal(WIDTH))
    other = line[max(0, min(len(line) - 1, index))]
    return other if other < plan.problem.movable else job


def _swap(plan: Plan, one: int, two: int) -> Change:
    """Two jobs change places; where they need different numbers of GPUs, in the order alone."""
    first, second = plan.spots[one], plan.spots[two]
    if one == two:
        return []
    if len(first.seats) != len(second.seats) or not (
        plan.problem.fits(one, second.seats) and plan.problem.fits(two, first.seats)
    ):
        return [
            (one, Spot(first.seats, second.key, first.beside)),
            (two, Spot(second.seats, first.key, second.beside)),
        ]
    return [
        (one, Spot(second.seats, second.key, first.beside)),
        (two, Spot(first.seats, first.key, second.beside)),
    ]
