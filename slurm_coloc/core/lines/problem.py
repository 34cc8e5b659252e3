# SPDX-License-Identifier: Apache-2.0
"""What a search over lines schedules: jobs and seats as plain lists, numbered from 0.

Speeds of a set of jobs on one seat are asked of the interference model once and kept: a set is an
integer, one bit a job.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from slurm_coloc.core.draw import Draw

#: sets of jobs whose speeds are kept; a bound on memory (about 100 MiB)
KEPT = 200_000


class Problem(ABC):
    """Jobs and the seats that they can be on.

    Per job ``run``: seconds alone; ``submit``: seconds; ``gpus``; ``weight``: what a second of its
    end counts in the mean end; ``seats``: where it can be at all; ``nodes``: the same by node, for
    a job of several GPUs. ``room``: MiB per seat. ``need[seat][job]``: MiB that the job takes
    there; one that must be alone takes all. ``most``: jobs that a seat holds at once. ``movable``:
    jobs below this number may be moved, the others run already and stay. ``ruled``: whether more
    than memory decides who may join (``may``).
    """

    run: list[float]
    submit: list[float]
    gpus: list[int]
    weight: list[float]
    seats: list[list[int]]
    nodes: list[list[list[int]]]
    room: list[int]
    need: list[list[int]]
    most: int
    movable: int
    ruled: bool = False
    bit: list[int]
    #: per seat, of each set of jobs there: the speed of each; seats that are alike share one
    kept: list[dict[int, dict[int, float]]]

    @abstractmethod
    def ask(self, seat: int, mates: Sequence[int]) -> dict[int, float]:
        """Speed of each of these jobs beside the others on a seat."""

    def may(self, job: int, seat: int, mates: Sequence[int]) -> bool:
        """Whether a job whose memory fits may join these. Asked where the problem is ``ruled``."""
        return True

    def speeds(self, seat: int, mates: Sequence[int], mask: int) -> dict[int, float]:
        """As ``ask``, remembered by the set's ``mask``."""
        kept = self.kept[seat]
        found = kept.get(mask)
        if found is None:
            if len(kept) >= KEPT:
                kept.clear()
            found = kept[mask] = self.ask(seat, sorted(mates))
        return found

    def beside(self, job: int, most: int | None = None) -> int:
        """Beside how many jobs, over all its seats, a job may start: what seats hold, or less."""
        limit = (self.most - 1) * self.gpus[job]
        return limit if most is None else min(most, limit)

    def some_seats(self, job: int, draw: Draw) -> tuple[int, ...]:
        """Seats that a job could have, drawn at random."""
        return tuple(sorted(draw.some(draw.one_of(self.nodes[job]), self.gpus[job])))

    def fits(self, job: int, seats: Sequence[int]) -> bool:
        """Whether each of these seats can hold a job."""
        mine = self.seats[job]
        return all(seat in mine for seat in seats)


def by_node(node: Sequence[int], seats: Sequence[int], gpus: int) -> list[list[int]]:
    """The seats from which a job's are drawn: those of one node where one has so many
    (core/queueing.py). ``node``: of each seat. Empty where there are too few."""
    found: dict[int, list[int]] = {}
    for seat in seats:
        found.setdefault(node[seat], []).append(seat)
    whole = [mine for mine in found.values() if len(mine) >= gpus]
    return whole or ([list(seats)] if len(seats) >= gpus else [])
