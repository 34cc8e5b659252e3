# SPDX-License-Identifier: Apache-2.0
"""How long a job is expected to run: from its own log, from ended runs of the same training, else
guessed from what ran so far and from its time limit (sim/search/run_times), or the limit as it
is."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import NormalDist, fmean

from slurm_coloc.sim.search.run_times import Expected, Guess, Training
from slurm_coloc.sim.trace import TraceJob

#: spread (standard deviation of the logarithm) of the runs of one training, and of a time limit:
#: most jobs end long before it
SAME, LIMIT = 0.05, 0.5
#: times what it has run, for a job that takes longer than all runs of its training did
LONGER = 1.5
#: ended jobs that a guess considers
LAST = 64
#: a log shows progress after so many seconds alone, and not before this part of the run is done:
#: the first epoch of twenty
FIRST_S, FIRST = 60.0, 0.05
#: spread (standard deviation of the logarithm) of the time left that it shows from then on
LOGGED = 0.05


@dataclass(frozen=True, slots=True)
class Logs:
    """What the logs of running jobs show of how long they take.

    Most trainings print how far they are: epoch 3 of 50, or tqdm's bar with its time left. That
    shows what part is done, and so what is left as far as the rest goes as fast. Which trainings
    print it, how soon, and how evenly they go are assumptions. ``share``: part of the trainings
    whose log shows how far they are. ``seed``: of which, and of their errors.
    """

    share: float
    seed: str = ""

    def read(self, job: TraceJob, done_s: float) -> Expected | None:
        """Of a job that has run for so many seconds alone; None: nothing."""
        if done_s < max(FIRST_S, FIRST * job.run_s):
            return None
        if Random(f"{self.seed}/{job.name or job.id}/tells").random() >= self.share:
            return None
        wrong = Random(f"{self.seed}/{job.id}/wrong").gauss(0.0, LOGGED)
        return Expected(done_s + max(0.0, job.run_s - done_s) * math.exp(wrong), LOGGED)


@dataclass(slots=True)
class Forecast:
    """``learns``: False knows time limits only, as Slurm does. ``guesses``: whether it also guesses
    where no run of the training ended. ``error``: of what earlier runs of a training show before
    one ends here (median, ratio; None: there were none), drawn once a training by ``seed``.
    ``logs``: what those of running jobs show; None: nothing."""

    learns: bool = True
    guesses: bool = False
    error: float | None = None
    seed: str = ""
    logs: Logs | None = None
    ended_runs: dict[tuple[str, int, float | None], list[float]] = field(default_factory=dict)
    ended: list[TraceJob] = field(default_factory=list)
    count: int = 0
    guess: Guess | None = None
    moment: object = None
    logged_ids: set[int] = field(default_factory=set)

    def learn(self, job: TraceJob) -> None:
        """A job ended and its time alone is known."""
        if self.learns:
            runs = self.ended_runs.setdefault(_run_of(job), [])
            runs.append(job.run_s)
            del runs[:-8]
            if self.guesses:
                self.ended.append(job)
                self.count += 1
                del self.ended[:-LAST]

    def news(self, going: Iterable[tuple[TraceJob, float]]) -> bool:
        """Whether a running job's log shows its run time that did not at the last call."""
        logged = {one.id for one, done_s in going if self.log(one, done_s) is not None}
        fresh = logged - self.logged_ids
        self.logged_ids = logged
        return bool(fresh)

    def expect(
        self, job: TraceJob, going: Sequence[tuple[TraceJob, float]] = ()
    ) -> Expected | None:
        """Seconds alone that a job is expected to run; None: not known.

        ``going``: jobs that run, and seconds alone that each has done.
        """
        done_s = next((done_s for one, done_s in going if one.id == job.id), 0.0)
        logged = self.log(job, done_s)
        if logged is not None:
            return logged
        runs = self.ended_runs.get(_run_of(job)) if job.name else None
        if runs:
            return _within(job, _like(runs, done_s))
        if self.error is not None:
            return _within(job, self._before(job, self.error))
        if self.guesses:
            return _within(job, self._guess(job, done_s, going))
        return None if job.limit_s is None else Expected(job.limit_s, LIMIT)

    def log(self, job: TraceJob, done_s: float) -> Expected | None:
        """What the log of a running job shows by now, if anything."""
        logged = None if self.logs is None else self.logs.read(job, done_s)
        return None if logged is None else _within(job, logged)

    def _before(self, job: TraceJob, error: float) -> Expected:
        """What runs before the trace showed: the truth times one error for each training."""
        training = job.name or str(job.id)
        sigma = error / NormalDist().inv_cdf(0.75)
        wrong = Random(f"{self.seed}/{training}/{job.gpus}").gauss(0.0, sigma)
        return Expected(job.run_s * math.exp(wrong), sigma)

    def _guess(
        self, job: TraceJob, done_s: float, going: Sequence[tuple[TraceJob, float]]
    ) -> Expected:
        """From jobs like it; one guess is made for all jobs of a moment."""
        moment = (self.count, tuple((one.id, ran_s) for one, ran_s in going))
        if self.guess is None or self.moment != moment:
            known: dict[Training, list[float]] = {}
            for one in self.ended:
                known.setdefault(_training(one), []).append(one.run_s)
            silent = []
            for one, ran_s in going:
                logged = self.log(one, ran_s)
                if logged is None:
                    silent.append((_training(one), ran_s))
                else:
                    known.setdefault(_training(one), []).append(logged.run_s)
            self.guess = Guess(known.items(), silent)
            self.moment = moment
        return self.guess.expect(_training(job), done_s)


def _run_of(job: TraceJob) -> tuple[str, int, float | None]:
    """What runs of one length have in common: a user who trains more epochs sets another limit."""
    return job.name, job.gpus, job.limit_s


def _training(job: TraceJob) -> Training:
    return Training(job.name, job.gpus, job.activity.smact, job.limit_s)


def _like(runs: Sequence[float], done_s: float) -> Expected:
    """From runs of the same training, less those that this one has outlived: one name may stand
    for several numbers of epochs."""
    longer = [run_s for run_s in runs if run_s > done_s]
    if not longer:
        return Expected(done_s * LONGER, LIMIT)
    logs = [math.log(max(1.0, one)) for one in longer]
    mean = fmean(logs)
    # Not statistics.pstdev: it counts in fractions, and this is asked of every job that arrives.
    spread = math.sqrt(sum([(one - mean) ** 2 for one in logs]) / len(logs))
    return Expected(fmean(longer), max(SAME, spread))


def _within(job: TraceJob, found: Expected) -> Expected:
    """No job runs longer than its limit."""
    if job.limit_s is None or found.run_s <= job.limit_s:
        return found
    return Expected(job.limit_s, found.spread)
