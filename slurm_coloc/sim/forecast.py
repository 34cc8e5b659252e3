# SPDX-License-Identifier: Apache-2.0
"""How long a job is expected to run: from ended runs of the same training, else guessed from what
ran so far and from its time limit (core/guess), or the limit as it is."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from statistics import NormalDist, fmean

from slurm_coloc.core.guess import Expected, Guess, Training
from slurm_coloc.sim.trace import TraceJob

#: spread (standard deviation of the logarithm) of the runs of one training, and of a time limit:
#: most jobs end long before it
SAME, LIMIT = 0.05, 0.5
#: ended jobs that a guess looks at
LAST = 64


@dataclass(slots=True)
class Forecast:
    """``learns``: False knows time limits only, as Slurm does. ``guesses``: whether it also guesses
    where no run of the training ended. ``error``: of what earlier runs of a training tell before
    one ends here (median, ratio; None: there were none), drawn once a training by ``seed``."""

    learns: bool = True
    guesses: bool = False
    error: float | None = None
    seed: str = ""
    seen: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    ended: list[TraceJob] = field(default_factory=list)
    count: int = 0
    guess: Guess | None = None
    moment: object = None

    def learn(self, job: TraceJob) -> None:
        """A job ended and its time alone is known."""
        if self.learns:
            runs = self.seen.setdefault((job.name, job.gpus), [])
            runs.append(job.run_s)
            del runs[:-8]
            if self.guesses:
                self.ended.append(job)
                self.count += 1
                del self.ended[:-LAST]

    def expect(
        self, job: TraceJob, going: Iterable[tuple[TraceJob, float]] = ()
    ) -> Expected | None:
        """Seconds alone that a job is expected to run; None: nobody knows.

        ``going``: jobs that run, and seconds alone that each has done.
        """
        runs = self.seen.get((job.name, job.gpus)) if job.name else None
        if runs:
            return _within(job, Expected(fmean(runs), SAME))
        if self.error is not None:
            return _within(job, self._before(job, self.error))
        if self.guesses:
            return _within(job, self._guess(job, going))
        return None if job.limit_s is None else Expected(job.limit_s, LIMIT)

    def _before(self, job: TraceJob, error: float) -> Expected:
        """What runs before the trace told: the truth times an error that its training keeps."""
        training = job.name or str(job.id)
        sigma = error / NormalDist().inv_cdf(0.75)
        wrong = Random(f"{self.seed}/{training}/{job.gpus}").gauss(0.0, sigma)
        return Expected(job.run_s * math.exp(wrong), sigma)

    def _guess(self, job: TraceJob, going: Iterable[tuple[TraceJob, float]]) -> Expected:
        """From jobs like it; one guess is made for all jobs of a moment."""
        runs = [(one.id, _training(one), done_s) for one, done_s in going]
        moment = (self.count, tuple((number, done_s) for number, _, done_s in runs))
        if self.guess is None or self.moment != moment:
            ended: dict[Training, list[float]] = {}
            for one in self.ended:
                ended.setdefault(_training(one), []).append(one.run_s)
            self.guess = Guess(ended.items(), [(one, done_s) for _, one, done_s in runs])
            self.moment = moment
        done_s = next((done_s for number, _, done_s in runs if number == job.id), 0.0)
        return self.guess.expect(_training(job), done_s)


def _training(job: TraceJob) -> Training:
    return Training(job.name, job.gpus, job.activity.smact, job.limit_s)


def _within(job: TraceJob, found: Expected) -> Expected:
    """No job runs longer than its limit."""
    if job.limit_s is None or found.run_s <= job.limit_s:
        return found
    return Expected(job.limit_s, found.spread)
