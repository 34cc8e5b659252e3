# SPDX-License-Identifier: Apache-2.0
"""What the logs of running jobs tell of how long they take.

Most trainings print how far they are: epoch 3 of 50, or tqdm's bar with its time left. That tells
what part is done, and so what is left as far as the rest goes as fast. Which trainings print it,
how soon, and how evenly they go are assumptions.
"""

import math
from dataclasses import dataclass
from random import Random

from slurm_coloc.sim.search.run_times import Expected
from slurm_coloc.sim.trace import TraceJob

#: a log tells after so many seconds alone, and not before this part of the run is done: the first
#: epoch of twenty
FIRST_S, FIRST = 60.0, 0.05
#: spread (standard deviation of the logarithm) of the time left that it tells from then on
SPREAD = 0.05


@dataclass(frozen=True, slots=True)
class Logs:
    """``share``: part of the trainings whose log tells how far they are. ``seed``: of which, and of
    their errors."""

    share: float
    seed: str = ""

    def tell(self, job: TraceJob, done_s: float) -> Expected | None:
        """Of a job that has run for so many seconds alone; None: nothing."""
        if done_s < max(FIRST_S, FIRST * job.run_s):
            return None
        if Random(f"{self.seed}/{job.name or job.id}/tells").random() >= self.share:
            return None
        wrong = Random(f"{self.seed}/{job.id}/wrong").gauss(0.0, SPREAD)
        return Expected(done_s + max(0.0, job.run_s - done_s) * math.exp(wrong), SPREAD)
