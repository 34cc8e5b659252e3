# SPDX-License-Identifier: Apache-2.0
"""The cost of sharing for a job: figures for `coloc report`, and --coloc-max-slowdown at
submission.

The slowdown is predicted after the fact, by a model of interference from the SM activities of the
jobs that were on the GPU; or measured, where the same training ran alone before. The time gained:
alone on this GPU the job would have begun when all jobs there at its start had left.

A slowdown limit, where GPUs are steered: a GPU is left out where the job or a neighbour would
exceed its limit, so a share keeps any limit that allows a neighbour at all. Elsewhere Slurm chooses
the GPU: a job that would exceed its limit beside one job like itself gets a whole GPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from slurm_coloc.core.decide.decision import Action, Decision, Reason
from slurm_coloc.core.place.activity import Activity
from slurm_coloc.core.place.interference import FITTED

#: assumed for a job whose activity is not known, as in core/place/speeds
BUSY = 1.0
#: On a GPU this busy the jobs' parts understate their slowdown: near the capacity of the model
#: (core/place/interference/reference.py) larger activities cannot be told apart.
FULL = 0.9
#: A job's activity alone is its part over its speed, which depends on all activities alone: a few
#: rounds from the expected ones converge.
ROUNDS = 4
#: earlier runs alone that differ by more than this part are no measure
ALIKE = 0.1
#: a slowdown limit below this (a ratio) allows no neighbour
ALONE = 1.005


@dataclass(frozen=True, slots=True)
class Beside:
    """A job on the same GPU. ``smact``: its SM activity alone (ratio), expected, or measured where
    it was ``alone`` once; ``part``: what was measured of it beside others. None: not known;
    ``end_s`` None: it is still running."""

    job_id: int
    start_s: float
    end_s: float | None
    smact: float | None = None
    part: float | None = None
    alone: bool = False


def predicted(
    smact: float | None, start_s: float, end_s: float, others: Sequence[Beside], method: str
) -> float | None:
    """Run time over what it would have been alone (1 = as fast); None where activities are not
    known. ``method``: ``mps`` or ``streams``."""
    if smact is None or end_s <= start_s or any(one.smact is None for one in others):
        return None
    work_s = alone_s(smact, start_s, end_s, others, method)
    return (end_s - start_s) / work_s if work_s > 0 else None


def looking_back(run: Beside, others: Sequence[Beside], end_s: float, method: str) -> float | None:
    """The same of a ``run`` until ``end_s``, by what was measured: a job's activity alone is its
    part of the GPU's over its speed. None where one was not measured: what is expected of a model
    may be three times too much. On a full GPU parts say too little, and the expected ones count."""
    there = (run, *others)
    if any(one.part is None and not one.alone for one in there):
        return None
    total, factor = 0.0, 1.0
    for one in there:
        both_s = min(one.end_s or end_s, end_s) - max(one.start_s, run.start_s)
        total += (one.part or one.smact or 0.0) * both_s / max(end_s - run.start_s, 1e-9)
    for _ in range(ROUNDS):
        mine, *them = [
            one
            if one.alone or total >= FULL
            else replace(one, smact=min(1.0, (one.part or 0.0) * factor))
            for one in there
        ]
        found = predicted(mine.smact, run.start_s, end_s, them, method)
        if found is None:
            return None
        factor = found
    return factor


def alone_s(
    smact: float, start_s: float, end_s: float, others: Sequence[Beside], method: str
) -> float:
    """Seconds that the work of a run from ``start_s`` to ``end_s`` takes alone; unknown ones count
    as busy."""
    cuts = {start_s, end_s}
    for one in others:
        cuts |= {one.start_s, one.end_s if one.end_s is not None else end_s}
    edges = sorted(cut for cut in cuts if start_s <= cut <= end_s)
    work_s = 0.0
    for here, following in pairwise(edges):
        there = [
            Activity(BUSY if one.smact is None else one.smact)
            for one in others
            if one.start_s <= here and (one.end_s is None or one.end_s >= following)
        ]
        speed = FITTED.speeds([Activity(smact), *there], method)[0]
        work_s += (following - here) * speed
    return work_s


def measured(run_s: float, alone_s: Sequence[float]) -> float | None:
    """Run time over the median run time of the same training alone; None where there are fewer than
    two, or they differ too much."""
    if len(alone_s) < 2 or min(alone_s) <= 0 or max(alone_s) > min(alone_s) * (1 + ALIKE):
        return None
    return run_s / median(alone_s)


def sooner_s(start_s: float, others: Sequence[Beside], now_s: float) -> float:
    """Seconds by which a run began before the jobs on its GPU at its start had left."""
    there = [one for one in others if one.start_s < start_s]
    ends = [now_s if one.end_s is None else one.end_s for one in there]
    return max(0.0, max(ends, default=start_s) - start_s)


@dataclass(frozen=True, slots=True)
class Load:
    """A job on a GPU now. ``alone``: its SM activity there alone, measured (``sure``) or expected;
    ``now``: its measured part of the GPU's activity. None: not known. ``settled``: it and its
    neighbours have been there longer than ``now`` is a mean over."""

    alone: float | None = None
    now: float | None = None
    sure: bool = False
    settled: bool = False


def wishes(loads: Sequence[Load], total: float | None, method: str) -> list[float]:
    """The SM activity that each of these jobs would have alone.

    Beside others a job's part is its activity alone times its speed there. Several activities may
    explain the same parts (jobs that block each other have small parts, as small jobs do), so the
    search begins at the expected ones, or at busy where nothing is known. On a full GPU (``total``:
    its measured activity) parts say even less: a job never measured alone counts as busy.
    """
    full = total is not None and total >= FULL and len(loads) > 1
    least, found = [], []
    for one in loads:
        expected = BUSY if one.alone is None or (full and not one.sure) else one.alone
        measured = one.settled and one.now is not None and not (full or one.sure)
        least.append(0.0 if measured else expected)
        found.append(max(expected, one.now or 0.0))
    for _ in range(ROUNDS):
        speeds = FITTED.speeds([Activity(smact) for smact in found], method)
        found = [
            min(1.0, max(few, (one.now or 0.0) / speed))
            for few, one, speed in zip(least, loads, speeds, strict=True)
        ]
    return found


def speed(mine: float, others: Sequence[float], method: str) -> float:
    """Speed (1 = alone) of a job of activity ``mine`` beside others."""
    return FITTED.speeds([Activity(mine), *map(Activity, others)], method)[0]


def smallest(smact: float | None, method: str = "mps") -> float:
    """The smallest slowdown that a job which shares must expect: beside one job like itself, as in
    a sweep. It cannot count on a lighter neighbour."""
    mine = BUSY if smact is None else smact
    return 1.0 / speed(mine, [mine], method)


def within_slowdown(
    decision: Decision, limit: float, smact: float | None, *, steered: bool
) -> Decision:
    """The decision under a slowdown limit. ``smact``: alone. MIG devices have no neighbours."""
    if decision.action is not Action.COLLOCATE or decision.slice_mib:
        return decision
    least = ALONE if steered else max(ALONE, smallest(smact))
    if limit >= least:
        return replace(decision, max_slowdown=limit)
    why = "no neighbour is possible under this limit"
    if limit >= ALONE:
        why = f"beside one job like it {least:.2f} is expected, and Slurm chooses the GPUs here"
    return Decision(Action.EXCLUSIVE, Reason.MAX_SLOWDOWN, detail=f"{limit:g}: {why}")


def limit_text(limit: float, *, steered: bool, node_gate: bool) -> str:
    """One line about the slowdown limit for the user of a share."""
    if steered:
        return f"at most {limit:g} times its time alone: its GPU is chosen by that"
    if node_gate:
        return f"--coloc-max-slowdown={limit:g} is watched; Slurm leaves out busy nodes"
    return f"--coloc-max-slowdown={limit:g} is watched, not kept: Slurm places it"
