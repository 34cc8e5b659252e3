# SPDX-License-Identifier: Apache-2.0
"""An interference model of SM and DRAM activity, fitted to measured pairs.

Fit, cross-validation and limits: estimator/interference/README.md; why: docs/adr.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.core.place.interference.reference import REFERENCE

#: Above so many jobs the bound on the GPU's total is the plain sum of solo activities, since the
#: exact bound looks at every subset of the jobs, 2 to the power of their number.
SUBSETS = 8
#: SM activity, pressure and exposure of a job
Load = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Fitted:
    """Time beside others over time alone is 1 + e (overlap + blocking), for each job.

    *Overlap* = ``overlap`` s S: both want the same SMs; s is the job's SM activity, S the sum of
    its neighbours'. *Blocking* = ``blocking`` (min(Z, ``strongest``) / 0.8)^``steep`` Z / (Z + z):
    neighbours whose kernels fill the GPU make all jobs wait, the lighter the more; z = s +
    ``dram`` (DRAM activity - s/2) is a job's pressure, Z the sum of its neighbours'. Beyond
    ``strongest``, the largest pressure that was measured, nothing is extrapolated. e = min(1,
    GRACT / ``exposed``) times the job's own sensitivity: a job that seldom has work on the GPU
    loses less there. Last, no set of jobs gets more than ``capacity`` of SM activity out of a GPU.

    The first four constants: weighted least squares over the 144 speeds of 72 measured pairs on an
    A100-40GB (estimator/interference/fit.py). ``exposed``: the lowest GRACT of a training of these
    pairs whose GRACT is known; ``capacity`` as in the reference. Streams and MIG as there, too.
    """

    name: str = "fitted"
    overlap: float = 0.248
    blocking: float = 0.983
    steep: float = 16.3
    dram: float = 0.386
    strongest: float = 0.826
    exposed: float = 0.36
    capacity: float = REFERENCE.capacity

    def speeds(self, jobs: Sequence[Activity], method: str = "mps") -> list[float]:
        """A further neighbour never speeds a job up."""
        if len(jobs) < 2:
            return [1.0] * len(jobs)
        if method == "streams":
            return REFERENCE.speeds(jobs, method)
        loads = [(job.smact, self.pressure(job), self.exposure(job)) for job in jobs]
        out = self._unbounded(loads)
        if sum(load[0] for load in loads) <= self.capacity:
            return out
        most = self._most(loads, out)
        return [speed * self.capacity / most for speed in out]

    def slice_speed(self, job: Activity, fraction: float) -> float:
        return REFERENCE.slice_speed(job, fraction)

    def pressure(self, job: Activity) -> float:
        """How much a job blocks others, by its DRAM activity, else by its SM activity."""
        if job.drama is None:
            return job.smact
        return job.smact + self.dram * (job.drama - job.smact / 2)

    def exposure(self, job: Activity) -> float:
        """Which part of the loss reaches the job, 0 to 1."""
        return min(1.0, job.engine / self.exposed) * job.sensitivity

    def _unbounded(self, loads: Sequence[Load]) -> list[float]:
        """Speeds without the bound of the GPU's capacity."""
        all_smact = all_pressure = 0.0
        for smact, pressure, _ in loads:
            all_smact += smact
            all_pressure += pressure
        out = []
        for smact, pressure, exposure in loads:
            others = all_pressure - pressure
            loss = self.overlap * smact * (all_smact - smact)
            if others > 1e-9:
                filled = min(others, self.strongest) / 0.8
                loss += self.blocking * filled**self.steep * others / all_pressure
            out.append(1.0 / (1.0 + loss * exposure))
        return out

    def _most(self, loads: Sequence[Load], speeds: Sequence[float]) -> float:
        """The most SM activity that any subset of these jobs gets; at least ``capacity``.

        A subset may get more without a neighbour that blocks it. Bounding by the most of all
        subsets keeps a newcomer that blocks some jobs from relieving others.
        """
        if len(loads) > SUBSETS:
            return sum(load[0] for load in loads)
        most = max(self.capacity, _used(loads, speeds))
        subsets: list[tuple[float, tuple[Load, ...]]] = [(0.0, ())]
        for load in loads:
            subsets += [(smact + load[0], (*some, load)) for smact, some in subsets]
        for smact, some in subsets:
            # All of them have less together than alone.
            if smact > most and len(some) < len(loads):
                most = max(most, _used(some, self._unbounded(some)))
        return most


def _used(loads: Sequence[Load], speeds: Sequence[float]) -> float:
    """SM activity of jobs at their speeds."""
    return sum([load[0] * speed for load, speed in zip(loads, speeds, strict=True)])


FITTED = Fitted()
