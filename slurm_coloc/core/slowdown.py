# SPDX-License-Identifier: Apache-2.0
"""What sharing cost a run, and what it gained: figures for `coloc report`.

Slower: by a model of interference from the SM activities of the jobs that were on the GPU, so a
prediction after the fact; or measured, where the same training ran alone before. Sooner: alone on
this GPU it would have begun when those had gone who were there at its start.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from slurm_coloc.core.activity import Activity
from slurm_coloc.core.interference import FITTED

#: earlier runs alone that differ more than this say nothing about how long this one would have been
ALIKE = 0.1


@dataclass(frozen=True, slots=True)
class Beside:
    """A job on the same GPU. ``smact``: its SM activity alone (ratio), None where not known;
    ``end_s`` None: it is still there."""

    job_id: int
    start_s: float
    end_s: float | None
    smact: float | None = None


def predicted(
    smact: float | None, start_s: float, end_s: float, others: Sequence[Beside], method: str
) -> float | None:
    """Run time over what it would have been alone (1 = as fast); None where activities are not
    known. ``method``: ``mps`` or ``streams``."""
    if smact is None or end_s <= start_s or any(one.smact is None for one in others):
        return None
    cuts = {start_s, end_s}
    for one in others:
        cuts |= {one.start_s, one.end_s if one.end_s is not None else end_s}
    edges = sorted(cut for cut in cuts if start_s <= cut <= end_s)
    work_s = 0.0
    for here, following in pairwise(edges):
        there = [
            Activity(one.smact or 0.0)
            for one in others
            if one.start_s <= here and (one.end_s is None or one.end_s >= following)
        ]
        speed = FITTED.speeds([Activity(smact), *there], method)[0]
        work_s += (following - here) * speed
    return (end_s - start_s) / work_s if work_s > 0 else None


def measured(run_s: float, alone_s: Sequence[float]) -> float | None:
    """The same from run times of the same training alone; None where there are fewer than two, or
    they differ among themselves."""
    if len(alone_s) < 2 or min(alone_s) <= 0 or max(alone_s) > min(alone_s) * (1 + ALIKE):
        return None
    return run_s / median(alone_s)


def sooner_s(start_s: float, others: Sequence[Beside], now_s: float) -> float:
    """Seconds by which it began before its GPU was empty of those that were there."""
    there = [one for one in others if one.start_s < start_s]
    ends = [now_s if one.end_s is None else one.end_s for one in there]
    return max(0.0, max(ends, default=start_s) - start_s)
