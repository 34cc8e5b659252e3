# SPDX-License-Identifier: Apache-2.0
"""A lower bound of the makespan that sees how slowly the first jobs arrive."""

from collections.abc import Sequence

from slurm_coloc.core.place.interference import REFERENCE
from slurm_coloc.sim.trace import TraceJob


def arrival_bound_s(
    jobs: Sequence[TraceJob], gpus: int, capacity: float = REFERENCE.capacity
) -> float:
    """Seconds that no schedule on whole GPUs under MPS can beat in the reference model; never less
    than ``sim.bound.bound_s``.

    Proof. Call run time alone x GPUs x SM activity a job's work. At speed v a job does v x GPUs x
    SM activity of work a second, and v <= 1, so by time t job j has done at most
    min(work_j, (t - submit_j) x GPUs_j x smact_j); P(t) is the sum of that over all jobs. After t
    all GPUs together do at most C x GPUs of work a second: in the model the sum of s v on a GPU
    never passes C, nor does a job alone on it (s <= 1 < C). So a makespan T has
    T >= t + (W - P(t)) / (C x GPUs) for every t, W being all work. That is piecewise linear in t
    and bends only where a job is submitted or could be done, so those t are enough. With
    t = submit_k and all earlier work taken as done it is bound_s, which therefore is not larger.
    """
    if not jobs:
        return 0.0
    all_work = sum(job.work_s for job in jobs)
    bends = [job.submit_s for job in jobs] + [job.submit_s + job.run_s for job in jobs]

    def done(at_s: float) -> float:
        return sum(
            min(job.run_s, max(0.0, at_s - job.submit_s)) * job.gpus * job.activity.smact
            for job in jobs
        )

    return max(
        max(job.submit_s + job.run_s for job in jobs),
        max(at_s + (all_work - done(at_s)) / (capacity * gpus) for at_s in bends),
    )
