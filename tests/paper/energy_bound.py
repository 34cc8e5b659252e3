# SPDX-License-Identifier: Apache-2.0
"""The least energy of a trace that no schedule can beat under the reference model."""

from collections.abc import Sequence
from itertools import pairwise

from slurm_coloc.core.place.interference import REFERENCE
from slurm_coloc.sim.bound import bound_s
from slurm_coloc.sim.power import Power, dram_activity
from slurm_coloc.sim.trace import TraceJob


def energy_bound_j(
    jobs: Sequence[TraceJob],
    gpus: int,
    power: Power,
    capacity: float = REFERENCE.capacity,
) -> float:
    """Joules of all GPUs until the last end that no schedule is below.

    What a job's activity draws beyond an idle GPU adds up over the jobs beside each other, so that
    all of it is known; only how it is spread over time and GPUs is not. A GPU may change between
    two levels, so power is on the lower hull of its curve, and no schedule ends before ``bound_s``.
    """
    active = [job for job in jobs if job.activity.smact > 0]
    drawn_j = sum(job.run_s * job.gpus * _drawn_w(job, power) for job in active)
    soonest_s = bound_s(jobs, gpus, capacity)
    if drawn_j <= 0:
        return gpus * soonest_s * power.idle_w
    most_w = capacity * max(_drawn_w(job, power) / job.activity.smact for job in active)
    mean_w = min(most_w, drawn_j / (gpus * soonest_s))
    steps = 400
    levels = [most_w * step / steps for step in range(1, steps + 1)]
    curve = [(w, min(power.limit_w, max(power.idle_w, power.base_w + w))) for w in levels]
    hull = _lower_hull([(0.0, power.idle_w), *curve])
    # Longer at a lower level: the energy of the same work is its draw over the level, at its watts.
    candidates = [mean_w, *(w for w, _ in hull if 0 < w < mean_w)]
    return min(drawn_j / w * _at(hull, w) for w in candidates)


def _drawn_w(job: TraceJob, power: Power) -> float:
    """Watts that a job's activity adds to a GPU."""
    return power.smact_w * job.activity.smact + power.dram_w * dram_activity(job.activity)


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
