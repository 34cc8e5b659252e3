# SPDX-License-Identifier: Apache-2.0
"""The same trace a little otherwise: one placement changes several figures, so means are told."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from slurm_coloc.sim.trace import TraceJob


@dataclass(frozen=True, slots=True)
class Jitter:
    """``submit_s``: standard deviation of a submission's time. ``run``: of the logarithm of a run
    time; epochs of one training differ by a few per cent."""

    submit_s: float = 20.0
    run: float = 0.02

    def of(self, jobs: Sequence[TraceJob], rng: Random) -> list[TraceJob]:
        """One variation. Run times keep their mean, limits stay."""
        return [
            replace(
                job,
                submit_s=max(0.0, job.submit_s + rng.gauss(0.0, self.submit_s)),
                run_s=job.run_s * math.exp(rng.gauss(0.0, self.run) - self.run**2 / 2),
            )
            for job in jobs
        ]


def variation(
    jobs: Sequence[TraceJob], jitter: Jitter, seed: int, number: int
) -> tuple[list[TraceJob], Random]:
    """The n-th variation of a seed, the same whatever the policy, and what further chances of that
    run are drawn from."""
    rng = Random(f"{seed}/{number}")
    return jitter.of(jobs, rng), rng
