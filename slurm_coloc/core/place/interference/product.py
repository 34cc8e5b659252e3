# SPDX-License-Identifier: Apache-2.0
"""A model of interference with one constant, for cards on which nothing was fitted."""

from collections.abc import Sequence
from dataclasses import dataclass

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.core.place.interference.reference import REFERENCE


@dataclass(frozen=True, slots=True)
class Product:
    """v = 1 / (1 + k s S), S the others' SM activity, 1 at most; where the sum of s v passes C, all
    v shrink by C over it. Streams and MIG: as under the reference.

    k is 0.39 for utilizations of the 1,388 pairs that Lucid measured on an RTX 3090, where the mean
    error of a pair's summed speed was 0.10 (reference 0.20, fitted 0.18, a constant 0.16); an SM
    activity is about 0.8 of the utilization. On the 72 pairs of an A100-40GB that `fitted` is of,
    it is behind: 0.16 (reference 0.10, fitted 0.09, a constant 0.22).
    """

    name: str = "product"
    k: float = 0.39 / 0.8**2
    capacity: float = REFERENCE.capacity

    def speeds(self, jobs: Sequence[Activity], method: str = "mps") -> list[float]:
        """As the protocol says."""
        if len(jobs) < 2 or method == "streams":
            return REFERENCE.speeds(jobs, method)
        total = sum(job.smact for job in jobs)
        out = [1.0 / (1.0 + self.k * job.smact * min(1.0, total - job.smact)) for job in jobs]
        used = sum(job.smact * speed for job, speed in zip(jobs, out, strict=True))
        shrink = min(1.0, self.capacity / used) if used > 0 else 1.0
        return [speed * shrink for speed in out]

    def slice_speed(self, job: Activity, fraction: float) -> float:
        """As the protocol says."""
        return REFERENCE.slice_speed(job, fraction)


PRODUCT = Product()
