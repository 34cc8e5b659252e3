# SPDX-License-Identifier: Apache-2.0
"""What earlier runs of the same model say about the next one.

With the same batch size the bound is the largest of n measured peaks times a margin. With normal
run-to-run noise of sd s the next peak exceeds the largest of n by more than c(n) * s in 1 of 100
cases; c falls from 3.29 (n = 1) to 0 (n = 99). s is NOISE, or more where the peaks spread more.

With another batch size the ratio of measured to estimated memory, above the context, is used: it
holds for a model from batch to batch much better than the estimate does. The bound is the largest
such ratio times a margin that shrinks with the number of batch sizes measured: quantiles of 1,730
measured runs of 356 models (`python -m estimator.evaluate.history`), from the measured batches to
each that was left out.

A run that ran out of memory, or that ended early, gives only a lower bound.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist

from slurm_coloc.core.decide.decision import HISTORY, Estimate
from slurm_coloc.core.decide.levels import DEFAULT_LEVEL, at_level

#: sd of a peak from run to run, as a part of what is above the context. Our data have no training
#: that was measured twice; neighbouring batch sizes scatter by 5 % at two sd.
NOISE = 0.025
FLOOR_MIB = 64  # as that of the estimates' margins
#: mean range of n normal values in sd (d2 of control charts; Montgomery, table VI)
RANGE = {1: 1.128, 2: 1.128, 3: 1.693, 5: 2.326, 10: 3.078, 20: 3.735, 50: 4.498, 100: 5.015}
#: margins on the largest ratio of 1, 2, 3 and more other batch sizes at levels.LEVELS, for
#: estimates that know each module, and for those that are cut or doubtful
TRANSFER = (
    (0.99, 1.04, 1.07, 1.12, 1.17, 1.21, 1.34),
    (0.98, 1.02, 1.03, 1.05, 1.08, 1.10, 1.19),
    (0.97, 1.01, 1.02, 1.04, 1.05, 1.07, 1.13),
)
TRANSFER_CUT = (
    (0.99, 1.08, 1.13, 1.22, 1.29, 1.43, 2.60),
    (0.97, 1.03, 1.05, 1.10, 1.14, 1.20, 1.59),
    (0.96, 1.02, 1.04, 1.06, 1.09, 1.13, 1.25),
)
#: a margin of the estimate above which it counts as cut or doubtful
WIDE = 1.25
#: with one batch size known, the 99 % quantiles are at most so far above the estimate's own margin
OWN_MORE = 0.02
#: contexts of 544 to 1,900 MiB were measured: a peak on another GPU type may be too low by so much
OTHER_GPU_MIB = 1356
#: with fewer measured runs the bound stays at half of the estimate or more: a program may have
#: ended well without training
FEW = 3


@dataclass(frozen=True, slots=True)
class Past:
    """The earlier runs with one batch size on one type of GPU.

    ``runs``: number of runs measured to their end; ``peak_mib``, ``low_mib``: the largest and the
    smallest of their peaks. ``at_least_mib``: the most that early ended runs took. ``oom_mib``: the
    largest share in which one ran out of memory. ``memory_mib``: the estimate for that batch size
    (without history) and its ``context_mib``, 0 where today's estimator made none. ``other_gpu``:
    not the type that the job will get.
    """

    batch: int
    runs: int = 0
    peak_mib: int = 0
    low_mib: int = 0
    at_least_mib: int = 0
    oom_mib: int = 0
    memory_mib: int = 0
    context_mib: int = 0
    other_gpu: bool = False


@dataclass(frozen=True, slots=True)
class Learned:
    """``estimate`` as ``runs`` earlier runs correct it, and ``why``, for the user."""

    estimate: Estimate
    runs: int
    why: str


@lru_cache(maxsize=256)
def step(runs: int, level: float) -> float:
    """c: a normal value exceeds the largest of ``runs`` others by c sd in 1 - level of cases."""
    normal = NormalDist()
    width = 0.02
    points = [-6 + width * i for i in range(600)]
    # density of the largest of n
    weights = [runs * normal.cdf(x) ** (runs - 1) * normal.pdf(x) * width for x in points]

    def exceeds(c: float) -> float:
        return sum(w * normal.cdf(-x - c) for w, x in zip(weights, points, strict=True))

    low, high = 0.0, 8.0
    if exceeds(low) <= 1 - level:
        return low
    for _ in range(24):
        middle = (low + high) / 2
        low, high = (middle, high) if exceeds(middle) > 1 - level else (low, middle)
    return high


def _counted(runs: int) -> int:
    """``runs`` rounded down to a number of RANGE, so that few values are computed."""
    return max(count for count in RANGE if count <= runs)


def warm_up(level: float) -> None:
    """Compute the values of same_batch at ``level`` in advance, some ms once."""
    for count in RANGE:
        step(count, level)


def _above(mib: int, context_mib: int, factor: float) -> int:
    context_mib = min(context_mib, mib)
    return context_mib + math.ceil((mib - context_mib) * factor) + FLOOR_MIB


def same_batch(
    estimate: Estimate | None, context_mib: int, past: Sequence[Past], level: float, what: str
) -> Learned | None:
    """From runs with the same batch size; ``estimate`` None: there is none."""
    known = [one for one in past if one.runs]
    if not known:
        return None
    # Runs on the job's own GPU type, where there are any; larger peaks elsewhere count too.
    runs = sum(one.runs for one in known if not one.other_gpu) or sum(one.runs for one in known)
    foreign = all(one.other_gpu for one in known)
    peak = max(one.peak_mib for one in known)
    low = min(one.low_mib for one in known)
    counted = _counted(runs)
    certain = _above(peak, context_mib, math.exp(step(counted, level) * NOISE))
    noise = math.log(max(1.0, peak / max(1, low))) / RANGE[counted]
    wide = _above(peak, context_mib, math.exp(step(counted, level) * max(noise, NOISE)))
    wide += OTHER_GPU_MIB if foreign else 0
    # The margin alone does not raise the bound above the estimate's; a measured peak does.
    upper = max(certain, min(wide, estimate.upper_mib)) if estimate else wide
    if estimate and runs < FEW:
        half = context_mib + max(0, estimate.memory_mib - context_mib) // 2 + FLOOR_MIB
        upper = max(upper, half)
    many = f"{runs} earlier run{'s' if runs > 1 else ''} of this {what}"
    made = estimate or Estimate(HISTORY, peak, upper)
    return Learned(
        replace(made, memory_mib=peak, upper_mib=upper), runs, f"{many} used {peak} MiB at most"
    )


def other_batch(
    estimate: Estimate, context_mib: int, past: Sequence[Past], level: float, what: str
) -> Learned | None:
    """From runs with other batch sizes, by measured over estimated."""
    ratios: dict[int, float] = {}
    for one in past:
        above = one.memory_mib - one.context_mib
        if one.runs and above > 0:
            measured = max(0, one.peak_mib - one.context_mib)
            ratios[one.batch] = max(ratios.get(one.batch, 0.0), measured / above)
    above = estimate.memory_mib - context_mib
    if not ratios or above <= 0:
        return None
    ratio = max(ratios.values())
    own = (estimate.upper_mib - FLOOR_MIB - context_mib) / above
    curves = TRANSFER_CUT if own > WIDE else TRANSFER
    # With one measured batch size the margin hardly exceeds the estimate's own.
    known = at_level(curves[min(len(ratios), len(curves)) - 1], level)
    margin = min(known, max(1.0, own + OWN_MORE))
    runs = sum(one.runs for one in past)
    memory = context_mib + math.ceil(above * ratio)
    upper = max(memory, _above(memory, context_mib, margin))
    if all(one.other_gpu for one in past if one.runs):
        upper += OTHER_GPU_MIB
    if ratio <= 1.0:
        upper = min(upper, max(estimate.upper_mib, memory))
    if runs < FEW:
        upper = max(upper, context_mib + above // 2 + FLOOR_MIB)
    sizes = ", ".join(str(batch) for batch in sorted(ratios)[:4])
    why = (
        f"{runs} earlier run{'s' if runs > 1 else ''} of this {what} with batch size {sizes} used"
        f" {100 * ratio:.0f} % of the estimate at most"
    )
    return Learned(replace(estimate, memory_mib=memory, upper_mib=upper), runs, why)


def correct(
    estimate: Estimate | None,
    batch: int,
    context_mib: int,
    past: Sequence[Past],
    level: float = DEFAULT_LEVEL,
    what: str = "model",
) -> Learned | None:
    """The estimate corrected by ``past``; None where that says nothing about it.

    ``estimate`` None: only runs with the same batch size can replace it. Never below a measured
    peak of the same batch size or, without one, of a smaller batch size; lower bounds only raise.
    """
    mine = [one for one in past if one.batch == batch]
    found = same_batch(estimate, context_mib, mine, level, what)
    if found is None and estimate is not None:
        found = other_batch(
            estimate, context_mib, [one for one in past if one.batch != batch], level, what
        )
    least = [one.at_least_mib for one in mine]
    if any(one.runs for one in mine):
        least += [one.oom_mib for one in mine]
    else:
        # A batch size that ran out of memory and was never measured to its end stays out of such
        # shares by the rule HISTORY_OOM: how much more it needs is not known. Smaller batch sizes
        # count until this one was measured: theirs may have been wrong.
        least += [
            max(one.at_least_mib, one.peak_mib, one.oom_mib) for one in past if one.batch < batch
        ]
    bound = max(least, default=0)
    if estimate is None and found is None:
        return None
    start = found or Learned(estimate or Estimate(HISTORY, 0, 0), 0, "")
    raised = _above(bound, context_mib, math.exp(step(1, level) * NOISE)) if bound else 0
    if raised <= start.estimate.upper_mib and bound <= start.estimate.memory_mib:
        return found
    higher = replace(
        start.estimate,
        memory_mib=max(bound, start.estimate.memory_mib),
        upper_mib=max(raised, start.estimate.upper_mib),
    )
    why = f"an earlier run of this {what} needed {bound} MiB at least"
    return Learned(higher, max(1, start.runs), f"{start.why}; {why}" if start.why else why)
