# SPDX-License-Identifier: Apache-2.0
"""What was seen of two trainings beside each other corrects what a model of interference says.

Time beside others over time alone, less 1, is the loss. Of each ordered pair (who lost, beside
whom) the ratio of the measured loss to the model's is stored as a mean of logarithms, and drawn
towards 1 as if so many observations had agreed with the model already.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.core.place.interference import Interference

#: Observations that the model counts for. Its weighted error on pairs that it never saw is 0.062 in
#: speed, of which 0.05 is noise of one observation (estimator/interference/README.md): what is left
#: for the pair itself is 0.037, and (0.05 / 0.037)^2 is 1.8.
PRIOR = 2.0
#: Added to both losses, so that one near nothing does not make a ratio without bounds: the noise of
#: one observation.
SMALL = 0.05
#: No single observation is taken as further than this ratio from what is known so far: something
#: else may have been slow. A choice; a true ratio beyond it is reached step by step.
MOST = 4.0

#: Standard deviations of a solo time that is taken for known (ratio), and of a speed however long
#: the overlap: eleven trainings that were run alone twice (estimator/interference/README.md).
SOLO_NOISE, SPEED_NOISE = 0.06, 0.05

#: method, who lost, beside whom
Key = tuple[str, str, str]


def in_overlap(alone_s: float, took_s: float, shared_s: float) -> tuple[float, float] | None:
    """What a run teaches about the one neighbour it had for a part of its time: slowdown in that
    part, and how sure that is, 0 to 1 (1: as sure as a run that was shared from end to end).

    ``alone_s``: its time alone; ``took_s``: its time now; ``shared_s``: of that beside the
    neighbour. None where nothing can be said: no overlap, or less done in it than nothing.
    """
    done_s = alone_s - (took_s - shared_s)
    if not (0 < shared_s <= took_s and alone_s > 0 and done_s > 0):
        return None
    noise = math.hypot(SPEED_NOISE, SOLO_NOISE * alone_s / shared_s)
    least = math.hypot(SPEED_NOISE, SOLO_NOISE)
    return shared_s / done_s, min(1.0, (least / noise) ** 2)


@dataclass(slots=True)
class Pairs:
    """All pairs that were seen: key -> (weight, sum of weighted logarithms)."""

    prior: float = PRIOR
    known: dict[Key, tuple[float, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Iterable[tuple[str, str, str, float, float]]) -> "Pairs":
        """From what ``rows`` gave."""
        return cls(known={(row[0], row[1], row[2]): (row[3], row[4]) for row in rows})

    def rows(self) -> list[tuple[str, str, str, float, float]]:
        """All that is known, to be stored: method, who, beside whom, weight, sum."""
        return [(*key, *value) for key, value in sorted(self.known.items())]

    def observe(
        self,
        who: str,
        beside: str,
        slowdown: float,
        predicted: float,
        method: str = "mps",
        weight: float = 1.0,
    ) -> None:
        """Note that a training took ``slowdown`` times its time alone beside another, where the
        model had said ``predicted``. ``weight``: less than 1 where they overlapped for a part of
        the time only. Trainings without a fingerprint, and figures that are none, teach nothing."""
        given = (slowdown, predicted, weight)
        if not who or not beside or not all(map(math.isfinite, given)) or weight <= 0:
            return
        measured_loss, model_loss = (max(0.0, one - 1.0) + SMALL for one in (slowdown, predicted))
        count, total = self.known.get((method, who, beside), (0.0, 0.0))
        expected = total / (count + self.prior) if count else 0.0
        news = math.log(measured_loss / model_loss) - expected
        log = expected + min(math.log(MOST), max(-math.log(MOST), news))
        self.known[method, who, beside] = (count + weight, total + weight * log)

    def loss(self, who: str, beside: str, model_loss: float, method: str = "mps") -> float:
        """The loss to expect of a pair where the model says ``model_loss``."""
        count, total = self.known.get((method, who, beside), (0.0, 0.0))
        if not count:
            return model_loss
        return max(0.0, (model_loss + SMALL) * math.exp(total / (count + self.prior)) - SMALL)


@dataclass(frozen=True, slots=True)
class Learned:
    """A model of interference, corrected by pairs; one itself.

    Of two jobs it says what was learned. Of more: what a pair loses beyond the model is added for
    each neighbour; less than the model only as far as it was learned beside every neighbour. So a
    further neighbour never speeds a job up, as long as it does not under the base model.
    """

    base: Interference
    pairs: Pairs

    @property
    def name(self) -> str:
        """The base model's, and that it was corrected."""
        return f"{self.base.name}+pairs"

    def speeds(self, jobs: Sequence[Activity], method: str = "mps") -> list[float]:
        """As the protocol says."""
        out = self.base.speeds(jobs, method)
        if not self.pairs.known or len(jobs) < 2:
            return out
        return [self._speed(jobs, index, speed, method) for index, speed in enumerate(out)]

    def slice_speed(self, job: Activity, fraction: float) -> float:
        """As the protocol says."""
        return self.base.slice_speed(job, fraction)

    def _speed(self, jobs: Sequence[Activity], index: int, speed: float, method: str) -> float:
        own = jobs[index]
        more, part = 0.0, 0.0
        for place, other in enumerate(jobs):
            if place == index:
                continue
            if (method, own.fingerprint, other.fingerprint) not in self.pairs.known:
                part = 1.0
                continue
            pair = 1.0 / self.base.speeds((own, other), method)[0] - 1.0
            loss = self.pairs.loss(own.fingerprint, other.fingerprint, pair, method)
            more += max(0.0, loss - pair)
            part = max(part, min(1.0, loss / pair) if pair > 0 else 1.0)
        return 1.0 / (1.0 + (1.0 / speed - 1.0) * part + more)
