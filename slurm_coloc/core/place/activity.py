# SPDX-License-Identifier: Apache-2.0
"""How busy a training keeps a GPU when it is alone on it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Activity:
    """Mean activity of one job alone on one GPU, as ratios of 0 to 1 (DCGM's profiling fields).

    ``smact``: SM activity (1002). ``smocc``: SM occupancy (1003). ``drama``: DRAM activity (1005).
    ``gract``: graphics engine activity (1001). None: not known.
    ``sensitivity``: which part of the time alone is spent where a neighbour can slow it down;
    below 1 for jobs that wait for the host, the disk or PCIe.
    ``fingerprint``: which training this is; jobs of one training count as alike. "": not known.
    """

    smact: float
    smocc: float | None = None
    drama: float | None = None
    gract: float | None = None
    sensitivity: float = 1.0
    fingerprint: str = ""

    @property
    def engine(self) -> float:
        """Share of the time in which the GPU has work of this job: GRACT, or from SMACT.

        Solo profiles of twelve trainings show 1.2 times the SM activity for large inputs and about
        twice for small ones (facts of the thesis' author's later profiles).
        """
        if self.gract is not None:
            return self.gract
        small, large = 0.25, 0.45  # SM activity of trainings on small and on large inputs
        part = min(1.0, max(0.0, (self.smact - small) / (large - small)))
        return min(1.0, self.smact * (2.0 + part * (1.2 - 2.0)))
