# SPDX-License-Identifier: Apache-2.0
"""Simulated annealing over plans.

What is minimised is the makespan plus parts of softer figures that lead there: the mean over the
seats of their last end (a seat that ends earlier has room for a job of the latest one) and, to tell
schedules of one makespan apart, the mean end of all jobs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from slurm_coloc.sim.clairvoyant.model import Model
from slurm_coloc.sim.clairvoyant.moves import propose
from slurm_coloc.sim.clairvoyant.plan import Plan, Spot, parts
from slurm_coloc.sim.clairvoyant.play import INF, Played, again, play

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
    """The best plan of a search. ``score``: what was minimised (s)."""

    score: float
    makespan_s: float
    spots: tuple[Spot, ...]


class Annealing:
    """One search from one plan."""

    def __init__(self, model: Model, spots: Sequence[Spot], rng: Random) -> None:
        self._plan, self._rng = Plan(model, spots), rng
        self._played: dict[int, Played] = {}
        for seats in parts(self._plan):
            self._played.update(dict.fromkeys(seats, play(self._plan, seats)))
        self._score = self._rate(self._played)
        self.best = Best(INF, INF, ())
        self._keep()

    def run(self, evaluations: int) -> Best:
        """Try so many changes."""
        one_s = self.best.makespan_s * len(self._played) / len(self._plan.spots)
        hot, cold = HOT * one_s, COLD * one_s
        for number in range(evaluations):
            warmth = hot * (cold / hot) ** (number / evaluations)
            self._try(self._score - warmth * math.log(1.0 - self._rng.random()))
        return self.best

    def _try(self, highest: float) -> None:
        """One change, kept when its score is not above ``highest``."""
        plan = self._plan
        changed: dict[int, int] = {}
        undo, tied = [], False
        for _ in range(2 if self._rng.random() < TWICE else 1):
            for job, spot in propose(plan, self._draw(), self._rng):
                undo.append((job, plan.put(job, spot, changed)))
                tied = tied or len(spot.seats) > 1
        if not undo:
            return
        played = self._replay(changed, tied)
        score = self._rate(played)
        if score > highest:
            for job, spot in reversed(undo):
                plan.put(job, spot, {})
            return
        self._played, self._score = played, score
        self._keep()

    def _draw(self) -> int:
        rng, lines = self._rng, self._plan.lines
        if rng.random() < CRITICAL:
            latest = max(self._played, key=lambda seat: self._played[seat].last[seat])
            if lines[latest]:
                return rng.choice(lines[latest])
        return rng.randrange(len(self._plan.spots))

    def _replay(self, changed: dict[int, int], tied: bool) -> dict[int, Played]:
        """The schedule after a change, as far as that touches it."""
        before = self._played
        now = dict(before)
        groups = parts(self._plan) if tied else {before[seat].seats for seat in changed}
        for seats in groups:
            old = before[seats[0]]
            mine = {seat: changed[seat] for seat in seats if seat in changed}
            if old.seats == seats and not mine:
                continue
            new = again(self._plan, old, mine) if old.seats == seats else play(self._plan, seats)
            for seat in seats:
                now[seat] = new
        return now

    def _rate(self, played: dict[int, Played]) -> float:
        ends = [one.last[seat] for seat, one in played.items()]
        jobs = sum(one.total for seat, one in played.items() if one.seats[0] == seat)
        mean = jobs / max(1, len(self._plan.spots))
        return max(ends) + SEATS * sum(ends) / len(ends) + JOBS * mean

    def _keep(self) -> None:
        """Remember the present plan where it is the best: by makespan, then by score."""
        latest = max(one.last[seat] for seat, one in self._played.items())
        if (latest, self._score) < (self.best.makespan_s, self.best.score):
            self.best = Best(self._score, latest, tuple(self._plan.spots))
