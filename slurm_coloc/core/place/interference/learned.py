# SPDX-License-Identifier: Apache-2.0
"""An interference model that knows what was measured of single pairs on this site.

A prior says what it says of every pair; runs that were measured beside each other correct it, the
more of them the more. Of larger groups no measurement says anything: there each neighbour's pair
counts by how far it is from the prior. What was measured on another card counts less than one run.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.core.place.interference.fitted import FITTED, Fitted
from slurm_coloc.core.records.pairs import PairSpeed

#: runs that the prior counts for. An error of 0.08 of a speed is the prior's (pairs left out,
#: estimator/interference/README.md), 0.05 that of one measured speed: (0.05 / 0.08)^2
PRIOR_RUNS = 0.4
#: The variance of a speed from card to card, in that of one measured speed: the same pairs on two
#: cards differed by 0.10 in their speeds' logarithms (estimator/interference/README.md): (0.10 /
#: 0.05)^2
CARD_RUNS = 4.0
#: OWNER:TRAINING, the neighbour's TRAINING, and the method. A log may claim anything: what it shows
#: is believed of its owner's jobs alone.
Whose = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Pair:
    """Speed (1 = alone; geometric mean) of a training beside another one, measured in ``runs``."""

    speed: float
    runs: float


def pairs_on(card: str, rows: Iterable[PairSpeed]) -> dict[Whose, Pair]:
    """What is known of pairs on a card (NVML's name; "": none that was measured on). However many
    runs another card had, they say no more than a part of one run here."""
    sums: dict[Whose, tuple[float, float]] = {}
    for row in rows:
        whose = f"{row.uid}:{row.training}", row.beside, row.method
        here = row.runs if row.card == card else 1.0 / (CARD_RUNS + 1.0 / row.runs)
        runs, logs = sums.get(whose, (0.0, 0.0))
        sums[whose] = runs + here, logs + here * row.log_speed
    return {whose: Pair(exp(logs / runs), runs) for whose, (runs, logs) in sums.items()}


@dataclass(frozen=True, slots=True)
class Learned:
    """``pairs``: what was measured. The fingerprint of an activity is OWNER:TRAINING, "" where that
    is not known. A speed is in (0, 1] as the prior's are."""

    pairs: Mapping[Whose, Pair] = field(default_factory=dict)
    prior: Fitted = FITTED
    name: str = "learned"

    def speeds(self, jobs: Sequence[Activity], method: str = "mps") -> list[float]:
        """As the protocol says. No job of a group is faster than beside one of them alone."""
        found = self.prior.speeds(jobs, method)
        if len(jobs) < 2 or not self.pairs:
            return found
        for place, job in enumerate(jobs):
            most = 1.0
            for other in (*jobs[:place], *jobs[place + 1 :]):
                training = other.fingerprint.rpartition(":")[2]
                pair = self.pairs.get((job.fingerprint, training, method))
                if pair is not None:
                    expected = self.prior.speeds([job, other], method)[0]
                    speed = _between(expected, pair)
                    found[place] *= speed / expected
                    most = min(most, speed)
            found[place] = min(found[place], most)
        return found

    def slice_speed(self, job: Activity, fraction: float) -> float:
        return self.prior.slice_speed(job, fraction)


def _between(expected: float, pair: Pair) -> float:
    """The speed between what the prior expects and what was measured, by their weights."""
    weight = pair.runs / (pair.runs + PRIOR_RUNS)
    return min(1.0, exp((1.0 - weight) * log(expected) + weight * log(pair.speed)))
