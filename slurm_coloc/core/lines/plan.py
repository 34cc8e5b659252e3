# SPDX-License-Identifier: Apache-2.0
"""A plan: where each job goes, and in which order.

A plan names for each job its seats, its place in one order of all jobs, and beside how many jobs it
may start at most (on all its seats together). On each seat the jobs start in that order: the first
one that has not started does so as soon as it was submitted, its memory is free and no more than
that many jobs are there, on all its seats at once; those behind it wait for it. One order for all
seats means that jobs of several GPUs never wait for each other in a circle.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from slurm_coloc.core.lines.problem import Problem


@dataclass(frozen=True, slots=True)
class Spot:
    """What a plan says of one job: its seats, its place in the order, and the most jobs beside
    which it may start, over all its seats."""

    seats: tuple[int, ...]
    key: float
    beside: int


class Plan:
    """A spot for each job, and the line of jobs of each seat that follows from them."""

    def __init__(self, problem: Problem, spots: Sequence[Spot]) -> None:
        self.problem = problem
        self.spots = list(spots)
        self.lines: list[list[int]] = [[] for _ in problem.room]
        for job, spot in sorted(enumerate(spots), key=lambda pair: (pair[1].key, pair[0])):
            for seat in spot.seats:
                self.lines[seat].append(job)

    def index(self, seat: int, key: float) -> int:
        """Where a job of that key stands, or would stand, in the line of a seat."""
        spots = self.spots
        return bisect_left(self.lines[seat], key, key=lambda job: spots[job].key)

    def put(self, job: int, spot: Spot, changed: dict[int, int]) -> Spot:
        """Change one job's spot; the former one is returned, to put it back. ``changed``: per seat
        the first index of its line that is not what it was, brought up to date."""
        before = self.spots[job]
        for seat in before.seats:
            line = self.lines[seat]
            index = line.index(job)
            del line[index]
            if index < changed.get(seat, index + 1):
                changed[seat] = index
        self.spots[job] = spot
        for seat in spot.seats:
            index = self.index(seat, spot.key)
            self.lines[seat].insert(index, job)
            if index < changed.get(seat, index + 1):
                changed[seat] = index
        return before


def parts(plan: Plan) -> list[tuple[int, ...]]:
    """All seats, in groups that no job of several GPUs ties to each other."""
    group = list(range(len(plan.lines)))
    for spot in plan.spots:
        if len(spot.seats) > 1:
            mine = {group[seat] for seat in spot.seats}
            to = min(mine)
            group = [to if one in mine else one for one in group]
    found: dict[int, list[int]] = {}
    for seat, one in enumerate(group):
        found.setdefault(one, []).append(seat)
    return [tuple(seats) for seats in found.values()]
