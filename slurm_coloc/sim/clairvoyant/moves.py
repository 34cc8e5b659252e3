# SPDX-License-Identifier: Apache-2.0
"""Small changes to a plan: what the local search tries next."""

from collections.abc import Sequence
from random import Random

from slurm_coloc.sim.clairvoyant.plan import Plan, Spot

Change = list[tuple[int, Spot]]

#: shares of the moves; what is left changes beside how many jobs one may start. All shares and
#: widths here were tried on the two traces of the thesis.
MOVE, SWAP = 0.45, 0.40
#: how often a move stays near the job's place in the order, and how near (places of a line)
NEAR, WIDTH = 0.7, 3.0
#: beside how many jobs one may start: None is as many as fit
BESIDE = (None, None, 3, 2, 2, 1, 1, 0)


def propose(plan: Plan, job: int, rng: Random) -> Change:
    """A change that concerns this job; empty where there is none of the kind that was drawn."""
    drawn = rng.random()
    if drawn < MOVE:
        return _move(plan, job, rng)
    if drawn < MOVE + SWAP:
        return _swap(plan, job, _partner(plan, job, rng))
    spot, beside = plan.spots[job], plan.model.beside(job, rng.choice(BESIDE))
    return [] if beside == spot.beside else [(job, Spot(spot.seats, spot.key, beside))]


def _move(plan: Plan, job: int, rng: Random) -> Change:
    """To other seats, or to another place in the order, or both."""
    spot = plan.spots[job]
    seats = spot.seats
    if len(seats) == 1:
        seats = (rng.choice(plan.model.seats[job]),)
    elif rng.random() < 0.5:
        seats = plan.model.some_seats(job, rng)
    line = [other for other in plan.lines[rng.choice(seats)] if other != job]
    keys = [plan.spots[other].key for other in line]
    if rng.random() < NEAR:
        index = sum(key < spot.key for key in keys) + round(rng.gauss(0.0, WIDTH))
        index = max(0, min(len(keys), index))
    else:
        index = rng.randrange(len(keys) + 1)
    return [(job, Spot(seats, _between(keys, index, rng), spot.beside))]


def _between(keys: Sequence[float], index: int, rng: Random) -> float:
    """A key that comes before ``keys[index]`` and after the one before it."""
    if not keys:
        return 0.0
    low = keys[index - 1] if index > 0 else keys[0] - 1.0
    high = keys[index] if index < len(keys) else low + 1.0
    return low + (high - low) * (0.1 + 0.8 * rng.random())


def _partner(plan: Plan, job: int, rng: Random) -> int:
    """A job to change places with: mostly one that starts at about the same time."""
    if rng.random() >= NEAR:
        return rng.randrange(len(plan.spots))
    seat = rng.choice(plan.model.seats[job])
    line = plan.lines[seat]
    if not line:
        return job
    index = plan.index(seat, plan.spots[job].key) + round(rng.gauss(0.0, WIDTH))
    return line[max(0, min(len(line) - 1, index))]


def _swap(plan: Plan, one: int, two: int) -> Change:
    """Two jobs change places; where they need different numbers of GPUs, in the order alone."""
    first, second = plan.spots[one], plan.spots[two]
    if one == two:
        return []
    if len(first.seats) != len(second.seats) or not (
        plan.model.fits(one, second.seats) and plan.model.fits(two, first.seats)
    ):
        return [
            (one, Spot(first.seats, second.key, first.beside)),
            (two, Spot(second.seats, first.key, second.beside)),
        ]
    return [
        (one, Spot(second.seats, second.key, first.beside)),
        (two, Spot(first.seats, first.key, second.beside)),
    ]
