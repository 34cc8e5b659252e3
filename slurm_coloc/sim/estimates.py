# SPDX-License-Identifier: Apache-2.0
"""What the scheduler knows of a job: an estimator's column, the truth, or a simulated error."""

import math
from collections.abc import Callable, Sequence
from random import Random
from statistics import NormalDist, StatisticsError

from slurm_coloc.core.place.gpu_slot import PlaceRequest
from slurm_coloc.errors import UsageFault
from slurm_coloc.sim.trace import TraceJob


def request_maker(
    estimator: str,
    jobs: Sequence[TraceJob],
    rng: Random,
    largest_mib: int,
    shard_mib: int = 1024,
    size_budget: float | None = None,
) -> Callable[[TraceJob], PlaceRequest]:
    """How a job of the trace becomes what a policy sees.

    ``estimator``: oracle; none; a column of the trace; or error:P[:LEVEL], the truth times a random
    error with P as the median of its absolute value, and a margin so that the part LEVEL of all
    jobs (0.99) stays within it.
    ``largest_mib``: what the largest GPU offers; a job that needs more gets whole GPUs.
    ``size_budget``: a job reserves at least the part of a GPU that its SM activity has in it, as
    core/decide does with pool.size_by_smact; None: its memory alone. Raises UsageFault for a column
    that no job has.
    """
    of, per_gpu = _memory(estimator, jobs, rng), largest_mib // shard_mib

    def _compute(job: TraceJob) -> int:
        if size_budget is None:
            return 0
        return min(math.ceil(job.activity.smact / size_budget * per_gpu), per_gpu - 1)

    def request(job: TraceJob) -> PlaceRequest:
        found = of(job)
        need = None
        if found is not None:
            shards = max(1, math.ceil(found / shard_mib), _compute(job))
            need = shards * shard_mib
        share = job.coloc and (estimator == "none" or (need is not None and need <= largest_mib))
        return job.request(need if share else None, share)

    return request


def _memory(
    estimator: str, jobs: Sequence[TraceJob], rng: Random
) -> Callable[[TraceJob], float | None]:
    if estimator == "oracle":
        return lambda job: job.memory_mib
    if estimator == "none":
        return lambda job: None
    if estimator.startswith("error:"):
        return _erring(estimator, jobs, rng)
    known = {name for job in jobs for name in job.estimates}
    if estimator not in known:
        raise UsageFault(
            f"--estimator {estimator}: the trace has no column {estimator}_mib; it has "
            f"oracle, none, error:RATIO{''.join(', ' + name for name in sorted(known))}"
        )
    return lambda job: job.estimates.get(estimator)


def _erring(
    estimator: str, jobs: Sequence[TraceJob], rng: Random
) -> Callable[[TraceJob], float | None]:
    """The truth times a lognormal error and a margin."""
    try:
        median, level = (*map(float, estimator.removeprefix("error:").split(":")), 0.99)[:2]
        # Of a normal distribution whose absolute value has that median.
        spread = NormalDist(0.0, median / NormalDist().inv_cdf(0.75))
        margin = math.exp(spread.inv_cdf(level))
    except (ValueError, StatisticsError):
        raise UsageFault(
            f"--estimator {estimator}: not error:RATIO[:LEVEL], e.g. error:0.03 or error:0.03:0.99"
        ) from None
    errors = {job.id: rng.gauss(0.0, spread.stdev) for job in jobs}
    return lambda job: job.memory_mib * math.exp(errors[job.id]) * margin
