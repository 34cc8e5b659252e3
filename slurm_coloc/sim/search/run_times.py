# SPDX-License-Identifier: Apache-2.0
"""How long a job may run, guessed from jobs that are a little like it.

The logarithm of a run time is taken to be that of the time limit, or of an hour where there is
none, plus a mean, one effect for each word of the job's name, one for each two of them, one for its
number of GPUs, one for its SM activity and one of its own training, all normal. What is expected of
a job is then the conditional mean given the jobs that ended (kriging, Gaussian process regression:
Rasmussen and Williams 2006, algorithm 2.1). A job that still runs tells something too: that it
takes longer than it has run. Without that the jobs that end first, the short ones, would make all
look short.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist, fmean

#: seconds of a job before anything is known: an hour, of the size of the thesis' trainings
PRIOR_S = 3600.0
#: standard deviations, of logarithms: of the mean, of the effects of a word, of two words together,
#: of the number of GPUs, of SM activity and of a training, and of one training's runs. A choice: on
#: the thesis' traces the errors (RMS of the logarithm) are 0.30 and 0.39; other values between 0.1
#: and 0.5 for words and pairs gave 0.29 to 0.36 and 0.39 to 0.44. Wider ones for GPUs and SM
#: activity err less in the first hours (0.30 where these have 0.48), but plans made with them ended
#: later.
MEAN, WORD, PAIR, GPUS, ACTIVITY, TRAINING, RUN = 1.0, 0.3, 0.3, 0.3, 0.3, 0.3, 0.1
#: SM activity (ratio) by which jobs must differ to be told apart
UNLIKE = 0.15
#: standard deviations below what is expected from which on a running job shows nothing yet
EARLY = 2.0
NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Training:
    """What is known of a job before it runs. ``smact``: SM activity alone (ratio). ``limit_s``: its
    time limit, which users set to what they think of and more."""

    name: str
    gpus: int
    smact: float
    limit_s: float | None = None


@dataclass(frozen=True, slots=True)
class Expected:
    """Seconds alone that a job may run (median), and ``spread``, the standard deviation of the
    logarithm."""

    run_s: float
    spread: float


class Guess:
    """From one moment's knowledge.

    ``ended``: trainings and the seconds alone that their runs took; ``going``: those that run, and
    the seconds alone that each has done.
    """

    def __init__(
        self,
        ended: Iterable[tuple[Training, Sequence[float]]],
        going: Iterable[tuple[Training, float]] = (),
    ) -> None:
        self._known: list[Training] = []
        self._values: list[float] = []
        self._noise: list[float] = []
        for one, runs in ended:
            logs = [math.log(max(1.0, run_s) / _before(one)) for run_s in runs]
            self._add(one, fmean(logs), RUN * RUN / len(logs))
        self._fit()
        found = [(one, *self._running(one, done_s)) for one, done_s in going if done_s > 1.0]
        for one, value, noise in found:
            if noise < math.inf:
                self._add(one, value, noise)
        self._fit()

    def expect(self, job: Training, done_s: float = 0.0) -> Expected:
        """Of a job that has run for so many seconds alone."""
        mean, spread = self._predict(job)
        if done_s > 0.0:
            mean, spread = _beyond(mean, spread, math.log(max(1.0, done_s) / _before(job)))
        return Expected(_before(job) * math.exp(mean), spread)

    def _running(self, one: Training, done_s: float) -> tuple[float, float]:
        """A value and its noise that say the same as a run of at least ``done_s`` does."""
        mean, spread = self._predict(one)
        low = math.log(done_s / _before(one))
        if low < mean - EARLY * spread:
            return mean, math.inf
        value, less = _beyond(mean, spread, low)
        gained = 1.0 / (less * less) - 1.0 / (spread * spread)
        return value, 1.0 / gained if gained > 1e-6 else math.inf

    def _add(self, one: Training, value: float, noise: float) -> None:
        self._known.append(one)
        self._values.append(value)
        self._noise.append(noise)

    def _fit(self) -> None:
        """The lower triangle of the covariances' Cholesky decomposition, by rows."""
        rows: list[list[float]] = []
        for index, one in enumerate(self._known):
            row = [_covariance(one, other) for other in self._known[: index + 1]]
            row[index] += self._noise[index]
            for column, above in enumerate(rows):
                done = sum([a * b for a, b in zip(row[:column], above[:column], strict=True)])
                row[column] = (row[column] - done) / above[column]
            row[index] = math.sqrt(max(1e-9, row[index] - sum([a * a for a in row[:index]])))
            rows.append(row)
        self._rows = rows
        self._weights = self._solve(self._values)

    def _solve(self, values: Sequence[float]) -> list[float]:
        found: list[float] = []
        for row, value in zip(self._rows, values, strict=True):
            # The diagonal's element is one longer than what is found so far.
            done = sum([a * b for a, b in zip(row, found, strict=False)])
            found.append((value - done) / row[-1])
        return found

    def _predict(self, job: Training) -> tuple[float, float]:
        near = self._solve([_covariance(job, one) for one in self._known])
        mean = sum([a * b for a, b in zip(near, self._weights, strict=True)])
        rest = _covariance(job, job) + RUN * RUN - sum([a * a for a in near])
        return mean, math.sqrt(max(RUN * RUN, rest))


def _before(one: Training) -> float:
    """Seconds that are expected before anything ran: all effects are parts of this."""
    return PRIOR_S if one.limit_s is None else max(1.0, one.limit_s)


def _covariance(one: Training, other: Training) -> float:
    """Of the logarithms of two trainings' times."""
    apart = (one.smact - other.smact) / UNLIKE
    shared = len(_words(one.name) & _words(other.name))
    pairs = shared * (shared - 1) // 2
    found = WORD * WORD * shared + PAIR * PAIR * pairs
    if (one.limit_s is None) == (other.limit_s is None):  # by how much limits are too long
        found += MEAN * MEAN
    found += ACTIVITY * ACTIVITY * math.exp(-apart * apart / 2)
    if one.gpus == other.gpus:
        found += GPUS * GPUS
        if one.name == other.name:
            found += TRAINING * TRAINING
    return found


def _beyond(mean: float, spread: float, low: float) -> tuple[float, float]:
    """Mean and standard deviation of what is left of a normal distribution above ``low``."""
    at = (low - mean) / spread
    if at < -4.0:
        return mean, spread
    if at > 6.0:  # it passed all that could be expected: it may well end soon
        return low + 0.1 * spread, 0.2 * spread
    ratio = NORMAL.pdf(at) / (1.0 - NORMAL.cdf(at))
    return mean + spread * ratio, spread * math.sqrt(max(0.01, 1.0 + at * ratio - ratio * ratio))


@lru_cache(4096)
def _words(name: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9]+", name.lower()))
