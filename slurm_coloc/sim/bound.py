# SPDX-License-Identifier: Apache-2.0
"""The earliest end of a trace, and the least energy, that no schedule can beat under the reference
model."""

from collections.abc import Sequence
from itertools import pairwise

from slurm_coloc.core.interference import REFERENCE
from slurm_coloc.sim.power import Power, dram_activity
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


def energy_bound_j(
    jobs: Sequence[TraceJob],
    gpus: int,
    power: Power,
    capacity: float = REFERENCE.capacity,
) -> float:
    """Joules of all GPUs until the last end that no schedule is below: all work done at the mean SM
    activity that is cheapest, no faster than ``bound_s`` allows. A GPU may change between two
    activities, so its power is on the lower hull of the curve. DRAM activity counts by the job
    that has least of it for its SM activity."""
    work = sum(job.work_s for job in jobs)
    soonest_s = bound_s(jobs, gpus, capacity)
    mean = min(capacity, work / (gpus * soonest_s)) if soonest_s > 0 else 0.0
    if mean <= 0:
        return 0.0
    steps = 200
    ratio = min(
        dram_activity(job.activity) / job.activity.smact for job in jobs if job.activity.smact > 0
    )
    hull = _lower_hull(
        [(x, power.watts(x, ratio * x)) for x in (capacity * i / steps for i in range(steps + 1))]
    )
    # Longer at a lower activity: the energy of the same work is gpus * time * watts(mean).
    candidates = [mean, *(x for x, _ in hull if 0 < x < mean)]
    return min(work / x * _at(hull, x) for x in candidates)


def _lower_hull(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The convex curve below points that are sorted by their first value."""
    hull: list[tuple[float, float]] = []
    for x, y in points:
        while len(hull) > 1:
            (x1, y1), (x2, y2) = hull[-2:]
            if (y2 - y1) * (x - x1) < (y - y1) * (x2 - x1):
                break
            hull.pop()
        hull.append((x, y))
    return hull


def _at(hull: Sequence[tuple[float, float]], x: float) -> float:
    for (x1, y1), (x2, y2) in pairwise(hull):
        if x <= x2:
            return y1 + (y2 - y1) * (x - x1) / (x2 - x1)
    return hull[-1][1]
