# SPDX-License-Identifier: Apache-2.0
"""Simulated annealing over plans.

What is minimised is the makespan plus parts of softer figures that lead there: the mean over the
slots of their last end (a slot that ends earlier has room for a job of the latest one) and, to tell
schedules of one makespan apart, the mean end of all jobs. Where run times are not certain a plan is
rated by the mean over several cases of them, so that one which ends late when a job takes longer
than expected is not taken for good.

The search itself is in C (kernel/), for a plan is tried a million times; one seed gives one answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from slurm_coloc.core.draw import Draw
from slurm_coloc.planning.schedules.native import Arrays, Ways
from slurm_coloc.planning.schedules.problem import Problem, Spot

#: how often a job of the slot that ends last is drawn, else any job
CRITICAL = 0.5
#: how often two changes are tried as one
TWICE = 0.1
#: temperatures at the beginning and at the end, as parts of a slot's time for one job
HOT, COLD = 0.05, 0.002
#: shares of the moves; what is left changes beside how many jobs one may start. All shares and
#: widths here were tried on the two traces of the thesis.
MOVE, SWAP = 0.45, 0.40
#: how often a move stays near the job's place in the order, and how near (places in a slot's queue)
NEAR, WIDTH = 0.7, 3.0
#: what is minimised beside the makespan: weights of the slots' mean last end, and of the jobs' mean
#: end
SLOTS, JOBS = 1.0, 0.002


@dataclass(frozen=True, slots=True)
class Best:
    """The best plan of a search. ``score``: what was minimised (s). ``makespan_s``: mean over the
    cases."""

    score: float
    makespan_s: float
    spots: tuple[Spot, ...]


def anneal(
    problem: Problem,
    runs: Sequence[Sequence[float]],
    spots: Sequence[Spot],
    draw: Draw,
    tries: int,
) -> Best:
    """The best plan of so many changes to ``spots``. ``runs``: seconds alone of each job, in each
    case of what they may be. Raises what the problem's ``request`` raises."""
    ways = Ways(SLOTS, JOBS, CRITICAL, TWICE, HOT, COLD, MOVE, SWAP, NEAR, WIDTH)
    score, makespan_s, found = Arrays(problem, runs).anneal(ways, spots, draw.bits(), tries)
    return Best(score, makespan_s, tuple(found))


def times(problem: Problem, spots: Sequence[Spot]) -> tuple[list[float], list[float]]:
    """When each job of a plan starts and ends (s); infinite: never."""
    return Arrays(problem, [problem.run]).times(spots)
