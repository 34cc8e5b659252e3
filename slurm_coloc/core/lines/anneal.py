# SPDX-License-Identifier: Apache-2.0
"""Simulated annealing over plans.

What is minimised is the makespan plus parts of softer figures that lead there: the mean over the
seats of their last end (a seat that ends earlier has room for a job of the latest one) and, to tell
schedules of one makespan apart, the mean end of all jobs. Where run times are not certain a plan is
rated by the mean over several cases of them, so that one which ends late when a job takes longer
than expected is not taken for good.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from slurm_coloc.core.draw import Draw
from slurm_coloc.core.lines.moves import propose
from slurm_coloc.core.lines.plan import Plan, Spot, parts
from slurm_coloc.core.lines.play import INF, Played, again, play
from slurm_coloc.core.lines.problem import Problem

#: weight of the seats' mean last end beside the makespan; of the jobs' mean end
SEATS, JOBS = 1.0, 0.002
#: how often a job of the seat that ends last is drawn, else any job
CRITICAL = 0.5
#: how often two changes are tried as one
TWICE = 0.1
#: temperatures at the beginning and at the end, as parts of a seat's time for one job
HOT, COLD = 0.05, 0.002


@dataclass(frozen=True, slots=True)
class Best:
    """The best plan of a search. ``score``: what was minimised (s). ``makespan_s``: mean over the
    cases."""

    score: float
    makespan_s: float
    spots: tuple[Spot, ...]


class Annealing:
    """One search from one plan. ``cases``: the same problem with run times as they may be; several
    share everything but these."""

    def __init__(self, cases: Sequence[Problem], spots: Sequence[Spot], draw: Draw) -> None:
        self._plans = [Plan(case, spots) for case in cases]
        self._plan, self._draw = self._plans[0], draw
        self._played: list[dict[int, Played]] = []
        groups = parts(self._plan)
        for plan in self._plans:
            played: dict[int, Played] = {}
            for seats in groups:
                played.update(dict.fromkeys(seats, play(plan, seats)))
            self._played.append(played)
        self._scores = [self._rate(played) for played in self._played]
        self._score = sum(self._scores) / len(self._plans)
        self.best = Best(INF, INF, ())
        self._keep()

    def run(self, evaluations: int) -> Best:
        """Try so many changes."""
        if not self._plan.problem.movable:
            return self.best
        one_s = self.best.makespan_s * len(self._plan.lines) / len(self._plan.spots)
        hot, cold = HOT * one_s, COLD * one_s
        for number in range(evaluations):
            warmth = hot * (cold / hot) ** (number / evaluations)
            self._try(self._score - warmth * math.log(1.0 - self._draw.part()))
        return self.best

    def _try(self, highest: float) -> None:
        """One change, kept when its score is not above ``highest``."""
        changed: dict[int, int] = {}
        undo, tied = [], False
        for _ in range(2 if self._draw.part() < TWICE else 1):
            for job, spot in propose(self._plan, self._pick(), self._draw):
                undo.append((job, self._plan.put(job, spot, changed)))
                for other in self._plans[1:]:
                    other.put(job, spot, {})
                tied = tied or len(spot.seats) > 1
        if not undo:
            return
        # What the cases may lose together: a change that loses it in the first is not tried on.
        left = (highest - self._score) * len(self._plans)
        after: list[dict[int, Played]] = []
        scores: list[float] = []
        for plan, before, old in zip(self._plans, self._played, self._scores, strict=True):
            after.append(_replay(plan, before, changed, tied))
            scores.append(self._rate(after[-1]))
            left -= scores[-1] - old
            if left < 0.0:
                for job, spot in reversed(undo):
                    for one in self._plans:
                        one.put(job, spot, {})
                return
        self._played, self._scores = after, scores
        self._score = sum(scores) / len(scores)
        self._keep()

    def _pick(self) -> int:
        draw, movable = self._draw, self._plan.problem.movable
        if draw.part() < CRITICAL:
            played = self._played[0] if len(self._played) == 1 else draw.one_of(self._played)
            latest = max(played, key=lambda seat: played[seat].last[seat])
            line = [job for job in self._plan.lines[latest] if job < movable]
            if line:
                return draw.one_of(line)
        return draw.below(movable)

    def _rate(self, played: dict[int, Played]) -> float:
        ends = [one.last[seat] for seat, one in played.items()]
        jobs = sum([one.total for seat, one in played.items() if one.seats[0] == seat])
        mean = jobs / max(1, len(self._plan.spots))
        return max(ends) + SEATS * sum(ends) / len(ends) + JOBS * mean

    def _keep(self) -> None:
        """Remember the present plan where it is the best: by makespan, then by score; where run
        times are not certain by score alone, of which the makespan is but a part."""
        latest = [max(one.last[seat] for seat, one in played.items()) for played in self._played]
        mean_s = sum(latest) / len(latest)
        first = mean_s if len(latest) == 1 else self._score
        best_s = self.best.makespan_s if len(latest) == 1 else self.best.score
        if (first, self._score) < (best_s, self.best.score):
            self.best = Best(self._score, mean_s, tuple(self._plan.spots))


def _replay(
    plan: Plan, before: dict[int, Played], changed: dict[int, int], tied: bool
) -> dict[int, Played]:
    """The schedule after a change, as far as that touches it."""
    now = dict(before)
    groups = parts(plan) if tied else {before[seat].seats for seat in changed}
    for seats in groups:
        old = before[seats[0]]
        mine = {seat: changed[seat] for seat in seats if seat in changed}
        if old.seats == seats and not mine:
            continue
        new = again(plan, old, mine) if old.seats == seats else play(plan, seats)
        for seat in seats:
            now[seat] = new
    return now
