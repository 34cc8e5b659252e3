# SPDX-License-Identifier: Apache-2.0
"""What is scheduled, jobs and slots as plain lists numbered from 0, and where a plan puts each job.

A plan names for each job its slots, its place in one order of all jobs, and beside how many jobs it
may start at most (on all its slots together). On each slot the jobs start in that order: the first
one that has not started does so as soon as it was submitted, its memory is free and no more than
that many jobs are there, on all its slots at once; those behind it wait for it. One order for all
slots means that jobs of several GPUs never wait for each other in a circle.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from slurm_coloc.core.draw import Draw


@dataclass(frozen=True, slots=True)
class Rules:
    """What decides besides memory which job may join which. ``lone``: it joins no other;
    ``group``: only jobs of one group share; ``smact``: SM activity alone (ratio), whose sum on a
    slot is within ``budget``; ``bound``: highest slowdown that it bears, where ``bounded``."""

    lone: Sequence[bool]
    group: Sequence[int]
    smact: Sequence[float]
    bound: Sequence[float]
    budget: float = float("inf")
    bounded: bool = False


@dataclass(frozen=True, slots=True)
class Spot:
    """What a plan says of one job: its slots (ascending), its place in the order, and the most jobs
    beside which it may start, over all its slots."""

    slots: tuple[int, ...]
    key: float
    beside: int


class Problem(ABC):
    """Jobs and the slots that they can be on.

    Per job ``run``: seconds alone; ``submit``: seconds; ``gpus``; ``kind``: jobs of one kind are
    alike to their neighbours; ``weight``: what a second of its end counts in the mean end;
    ``slots``: where it can be at all; ``nodes``: the same by node, for a job of several GPUs.
    ``room``: MiB per slot. ``alike``: per slot a number, the same where speeds are. ``need``: MiB
    by slot and job; one that must be alone takes all. ``most``: jobs that a slot holds at once.
    ``movable``: jobs below this number may be moved, the others run already and stay. ``rules``:
    None where memory alone decides. ``after``: for each job one that starts before it, -1: none.
    """

    run: list[float]
    submit: list[float]
    gpus: list[int]
    kind: list[int]
    weight: list[float]
    slots: list[list[int]]
    nodes: list[list[list[int]]]
    room: list[int]
    alike: list[int]
    need: list[list[int]]
    most: int
    movable: int
    rules: Rules | None = None
    after: list[int] | None = None

    @abstractmethod
    def speeds(self, slot: int, kinds: Sequence[int]) -> Sequence[float]:
        """Speed of jobs of these kinds (sorted) beside each other on a slot."""

    def beside(self, job: int) -> int:
        """Beside how many jobs, over all its slots, a job may start: what slots hold."""
        return (self.most - 1) * self.gpus[job]

    def some_slots(self, job: int, draw: Draw) -> tuple[int, ...]:
        """Slots that a job could have, drawn at random."""
        return tuple(sorted(draw.some(draw.one_of(self.nodes[job]), self.gpus[job])))

    def fits(self, job: int, slots: Sequence[int]) -> bool:
        """Whether each of these slots can hold a job."""
        mine = self.slots[job]
        return all(slot in mine for slot in slots)


def by_node(node: Sequence[int], slots: Sequence[int], gpus: int) -> list[list[int]]:
    """The slots from which a job's are drawn: those of one node where one has so many
    (core/place/queue_discipline.py). ``node``: of each slot. Empty where there are too few."""
    found: dict[int, list[int]] = {}
    for slot in slots:
        found.setdefault(node[slot], []).append(slot)
    whole = [mine for mine in found.values() if len(mine) >= gpus]
    return whole or ([list(slots)] if len(slots) >= gpus else [])
