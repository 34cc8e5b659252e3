# SPDX-License-Identifier: Apache-2.0
"""Measured runs beside their estimates: errors, bounds, and bounds for families kept out."""

import math
import random
from collections.abc import Sequence
from typing import NamedTuple

from estimator.measured import family
from slurm_coloc.estimate.api import TrainingOptions, estimate
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.estimate.replay.margin import FLOOR_MIB
from slurm_coloc.estimate.replay.stack import Stack

#: of the card that the runs were measured on, fitted to them
CONTEXT_MIB = 1735
#: what the runs most likely trained with: residuals do not grow with the parameters then
OPTIMIZER = "sgd-momentum"
#: parts that the families are cut into, and how often that is drawn
FOLDS, FOLDINGS = 5, 4


class Judged(NamedTuple):
    """A measured run and its estimate (MiB)."""

    model: str
    batch: int
    measured_mib: int
    mib: int
    upper_mib: int
    seconds: float

    @property
    def above_mib(self) -> int:
        """The estimate above the context."""
        return self.mib - CONTEXT_MIB

    @property
    def score(self) -> float:
        """The margin that this run would have needed."""
        return (self.measured_mib - CONTEXT_MIB - FLOOR_MIB) / self.above_mib

    @property
    def margin(self) -> float:
        """The margin that its bound has."""
        return (self.upper_mib - CONTEXT_MIB - FLOOR_MIB) / self.above_mib

    @property
    def error(self) -> float:
        """Over what was measured."""
        return self.mib / self.measured_mib - 1.0


def judge(model: str, text: str, runs: Sequence[tuple[int, int]], estimator: str) -> list[Judged]:
    """All runs (batch, MiB) of one model; those without a figure are left out."""
    summary = parse_summary(text)
    found = []
    for batch, mib in runs:
        options = TrainingOptions(batch_size=batch, optimizer=OPTIMIZER)
        answer = estimate(summary, options, stack=Stack(CONTEXT_MIB), estimator=estimator)
        if answer.memory_mib is not None and answer.upper_mib is not None:
            found.append(
                Judged(model, batch, mib, answer.memory_mib, answer.upper_mib, answer.seconds)
            )
    return found


def table(judged: Sequence[Judged]) -> str:
    """One line of figures."""
    errors = sorted(abs(one.error) for one in judged)
    seconds = sorted(one.seconds for one in judged)
    many = len(errors)

    def within(limit: float) -> float:
        return 100 * sum(error < limit for error in errors) / many

    under = 100 * sum(one.upper_mib < one.measured_mib for one in judged) / many
    over = sum(one.upper_mib - one.measured_mib for one in judged) / many
    return (
        f"{many} runs of {len({one.model for one in judged})} models in"
        f" {len({family(one.model) for one in judged})} families:"
        f" median error {100 * errors[many // 2]:.2f} %,"
        f" within 5 % {within(0.05):.1f} %, 10 % {within(0.1):.1f} %, 20 % {within(0.2):.1f} %;"
        f" above the bound {under:.2f} %, reserved too much {over:.0f} MiB in the mean;"
        f" {1000 * seconds[many // 2]:.1f} ms, at most {1000 * seconds[-1]:.0f}"
    )


def quantile(scores: Sequence[float], level: float) -> float:
    """What leaves at most 1 - level of the next scores above it."""
    ordered = sorted(scores)
    return ordered[min(len(ordered) - 1, math.ceil(level * (len(ordered) + 1)) - 1)]


def kept_out(judged: Sequence[Judged], seed: int, level: float = 0.99) -> str:
    """What margins promise to families that they were not taken from. What the shipped margins add
    is scaled, for all tiers alike (a tier may have runs of two families only), so that it holds for
    ``level`` of the runs of four fifths of the families, and held against the last fifth, each
    fifth in turn."""
    names = sorted({family(one.model) for one in judged})
    random.Random(seed).shuffle(names)
    under, over = 0, 0.0
    for fold in range(FOLDS):
        held = set(names[fold::FOLDS])
        needed = [
            (one.score - 1) / (one.margin - 1) for one in judged if family(one.model) not in held
        ]
        scale = quantile(needed, level)
        for one in judged:
            if family(one.model) in held:
                margin = 1 + scale * (one.margin - 1)
                spare = CONTEXT_MIB + FLOOR_MIB + margin * one.above_mib - one.measured_mib
                under, over = under + (spare < 0), over + spare
    many = len(judged)
    return (
        f"  {100 * level:g} % of other families ({len(names)} in {FOLDS} parts, drawn with {seed}):"
        f" above the bound {100 * under / many:.2f} %, reserved too much {over / many:.0f} MiB"
    )


def worst(judged: Sequence[Judged], many: int) -> list[str]:
    """The models that are furthest off, with all their batches."""
    by_model: dict[str, list[Judged]] = {}
    for one in judged:
        by_model.setdefault(one.model, []).append(one)
    order = sorted(by_model.values(), key=lambda ones: -max(abs(one.error) for one in ones))
    return [
        f"{ones[0].model:38} " + " ".join(f"{one.batch}:{100 * one.error:+.1f}%" for one in ones)
        for ones in order[:many]
    ]
