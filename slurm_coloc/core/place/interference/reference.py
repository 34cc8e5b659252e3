# SPDX-License-Identifier: Apache-2.0
"""The interference model that figures are compared under."""

from collections.abc import Sequence
from dataclasses import dataclass

from slurm_coloc.core.place.activity import Activity


@dataclass(frozen=True, slots=True)
class Reference:
    """The model that figures are compared under; its constants stay as they are for ever.

    MPS: S = min(1, sum of the others' SM activity); v = 1 / (1 + k S^3); where the sum of s v
    passes C, all v shrink by C over it. k by least squares over 72 measured pairs (RMSE 0.107), C
    near the largest sum seen in them. Streams: time slices, v = min(1, 1 / sum of GRACT).
    MIG: v = min(1, fraction / s).
    """

    name: str = "reference"
    k: float = 1.1
    capacity: float = 1.05

    def speeds(self, jobs: Sequence[Activity], method: str = "mps") -> list[float]:
        """As the protocol says."""
        if len(jobs) < 2:
            return [1.0] * len(jobs)
        if method == "streams":
            together = sum(job.engine for job in jobs)
            return [min(1.0, 1.0 / together) if together > 0 else 1.0] * len(jobs)
        total = sum(job.smact for job in jobs)
        out = [1.0 / (1.0 + self.k * min(1.0, total - job.smact) ** 3) for job in jobs]
        used = sum(job.smact * speed for job, speed in zip(jobs, out, strict=True))
        if used <= self.capacity:
            return out
        shrink = self.capacity / used
        return [speed * shrink for speed in out]

    def slice_speed(self, job: Activity, fraction: float) -> float:
        """As the protocol says."""
        return min(1.0, fraction / job.smact) if job.smact > 0 else 1.0


REFERENCE = Reference()
