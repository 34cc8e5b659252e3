# SPDX-License-Identifier: Apache-2.0
"""The earliest end of a trace that no schedule can beat under the reference model."""

from collections.abc import Sequence

from slurm_coloc.core.place.interference import REFERENCE
from slurm_coloc.sim.trace import TraceJob


def bound_s(jobs: Sequence[TraceJob], gpus: int, capacity: float = REFERENCE.capacity) -> float:
    """Seconds: the latest over k of the k-th submission plus all work from there on at full
    capacity, and of each submission plus that job's time alone."""
    best = max((job.submit_s + job.run_s for job in jobs), default=0.0)
    work = 0.0
    for job in sorted(jobs, key=lambda job: job.submit_s, reverse=True):
        work += job.work_s
        best = max(best, job.submit_s + work / (capacity * gpus))
    return best
