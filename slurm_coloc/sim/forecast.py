# SPDX-License-Identifier: Apache-2.0
"""How long a job is expected to run: from ended runs of the same training, else its time limit.

Where neither is known it can be guessed from what ran so far: jobs like it that ended, and for how
long those that still run have run. Without the latter the jobs that end first, the short ones,
would make all look short.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random
from statistics import NormalDist, fmean

from slurm_coloc.sim.trace import TraceJob

#: seconds of a job before anything is known, and for how many ended jobs that counts
PRIOR_S, PRIOR_JOBS = 3600.0, 0.1
#: SM activity (ratio) by which jobs must differ to be told apart
UNLIKE = 0.15
#: what a job of other names tells, where one of the same words would tell 1
STRANGER = 0.05
#: ended jobs that a guess looks at
LAST = 64


@dataclass(slots=True)
class Forecast:
    """``learns``: False knows time limits only, as Slurm does. ``guesses``: whether it also guesses
    where nobody knows. ``error``: of what earlier runs of a training tell before one ends here
    (median, ratio; None: there were none), drawn once a training by ``seed``."""

    learns: bool = True
    guesses: bool = False
    error: float | None = None
    seed: str = ""
    seen: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    ended: list[TraceJob] = field(default_factory=list)

    def learn(self, job: TraceJob) -> None:
        """A job ended and its time alone is known."""
        if self.learns:
            runs = self.seen.setdefault((job.name, job.gpus), [])
            runs.append(job.run_s)
            del runs[:-8]
            if self.guesses:
                self.ended.append(job)
                del self.ended[:-LAST]

    def expect(self, job: TraceJob, going: Iterable[tuple[TraceJob, float]] = ()) -> float | None:
        """Seconds alone that a job is expected to run; None: nobody knows.

        ``going``: jobs that run, and seconds alone that each has done.
        """
        runs = self.seen.get((job.name, job.gpus)) if job.name else None
        if runs:
            expected = fmean(runs)
            return min(expected, job.limit_s) if job.limit_s is not None else expected
        if self.error is not None:
            expected = self._before(job, self.error)
            return min(expected, job.limit_s) if job.limit_s is not None else expected
        if job.limit_s is not None or not self.guesses:
            return job.limit_s
        return self._guess(job, going)

    def _before(self, job: TraceJob, error: float) -> float:
        """What runs before the trace told: the truth times an error that its training keeps."""
        training = job.name or str(job.id)
        sigma = error / NormalDist().inv_cdf(0.75)
        return job.run_s * math.exp(Random(f"{self.seed}/{training}/{job.gpus}").gauss(0.0, sigma))

    def _guess(self, job: TraceJob, going: Iterable[tuple[TraceJob, float]]) -> float:
        """Time per end, over like jobs: ended ones count whole, running ones add their time."""
        seconds, ends = PRIOR_S * PRIOR_JOBS, PRIOR_JOBS
        for other in self.ended:
            weight = _like(job, other)
            seconds += weight * other.run_s
            ends += weight
        for other, done_s in going:
            seconds += _like(job, other) * done_s
        return seconds / ends


def _like(one: TraceJob, other: TraceJob) -> float:
    """How much one job tells of another, from what is known before it runs: SM activity, number of
    GPUs, and the words that their names share."""
    apart = (one.activity.smact - other.activity.smact) / UNLIKE
    wide = 1.0 if one.gpus == other.gpus else 0.3
    mine, theirs = _words(one.name), _words(other.name)
    shared = len(mine & theirs) / len(mine | theirs) if mine or theirs else 0.0
    return wide * math.exp(-0.5 * apart * apart) * (STRANGER + shared * shared)


@lru_cache(4096)
def _words(name: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9]+", name.lower()))
