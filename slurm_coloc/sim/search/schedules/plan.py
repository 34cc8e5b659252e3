# SPDX-License-Identifier: Apache-2.0
"""A plan: where each job goes, and in which order.

A plan names for each job its slots, its place in one order of all jobs, and beside how many jobs it
may start at most (on all its slots together). On each slot the jobs start in that order: the first
one that has not started does so as soon as it was submitted, its memory is free and no more than
that many jobs are there, on all its slots at once; those behind it wait for it. One order for all
slots means that jobs of several GPUs never wait for each other in a circle.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spot:
    """What a plan says of one job: its slots (ascending), its place in the order, and the most jobs
    beside which it may start, over all its slots."""

    slots: tuple[int, ...]
    key: float
    beside: int
