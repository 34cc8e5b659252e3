# SPDX-License-Identifier: Apache-2.0
"""Fits the head for SM activity and judges it on families that it did not see.

    python -m estimator.activity TEXTS

TEXTS: folder of the trainings' summaries, made where they are not there. The measured rows are no
part of this tree: COLOC_SHARED names their folder. Prints coefficients, errors and intervals.
"""

import argparse
import math
import random
import sys
from collections.abc import Sequence
from dataclasses import astuple, fields
from pathlib import Path
from statistics import fmean

from estimator.activity.rows import Row, mlps, workloads
from estimator.activity.texts import make
from estimator.interference.leastsquares import minimise
from estimator.measured import SHARED
from slurm_coloc.estimate.activity.cards import CARDS, MEASURED
from slurm_coloc.estimate.activity.model import Coefficients, predict

CARD = CARDS[MEASURED]
NAMES = [one.name for one in fields(Coefficients)]
#: What is known beforehand; the fit is drawn towards it, for 30 runs cannot tell eleven numbers.
BEFORE = Coefficients(
    conv=0.35, dense=0.7, bandwidth=0.7, traffic=1.5, shortest_s=4e-6, call_s=5e-5, step_s=3e-3,
    element_s=6e-9, tile=2000.0, sweep=1500.0, norm=4.0,
)  # fmt: skip
PULL, TIME, DRAM = 0.005, 0.1, 0.3  # weights beside the error of SM activity
MLP_ROWS = 300
COVER = 0.9
#: errors of SM and of DRAM activity, by group
ByGroup = dict[str, list[tuple[float, float | None]]]


def fit(rows: Sequence[Row], before: Coefficients = BEFORE, pull: float = PULL) -> Coefficients:
    """Least squares over logarithms of the coefficients; large residuals count less."""
    start = [math.log(value) for value in astuple(before)]

    def residuals(here: Sequence[float]) -> list[float]:
        given = Coefficients(*(math.exp(min(50.0, max(-50.0, value))) for value in here))
        out = []
        for row in rows:
            smact, dram, step_s = predict(row.step, row.batch, CARD, given, row.optimizer, False)
            out.append(_soft(smact - row.smact))
            if row.step_s:
                out.append(_soft(TIME * math.log(step_s / row.step_s)))
            if row.dram is not None:
                out.append(_soft(DRAM * (dram - row.dram)))
        weight = pull * math.sqrt(len(rows))
        return out + [weight * (a - b) for a, b in zip(here, start, strict=True)]

    return Coefficients(*(math.exp(value) for value in minimise(residuals, start)))


def _soft(value: float, scale: float = 0.05) -> float:
    """A residual whose square grows as its size far from zero."""
    rough = scale * math.sqrt(2 * (math.sqrt(1 + (value / scale) ** 2) - 1))
    return math.copysign(rough, value)


def errors(rows: Sequence[Row], given: Coefficients) -> list[tuple[float, float | None]]:
    """Errors of SM and of DRAM activity."""
    found = []
    for row in rows:
        smact, dram, _ = predict(row.step, row.batch, CARD, given, row.optimizer, False)
        found.append((smact - row.smact, None if row.dram is None else dram - row.dram))
    return found


def kept_out(rows: Sequence[Row], few: int | None = None) -> ByGroup:
    """Errors of each group by coefficients that never saw it. ``few``: rows of a fit at most."""
    draw = random.Random(1)
    found = {}
    for group in sorted({row.group for row in rows}):
        others = [row for row in rows if row.group != group]
        if few and len(others) > few:
            others = draw.sample(others, few)
        found[group] = errors([row for row in rows if row.group == group], fit(others))
    return found


def quantile(values: Sequence[float], level: float) -> float:
    """The smallest value that ``level`` of (n + 1) values do not pass: split-conformal."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(level * (len(ordered) + 1)) - 1)]


def report(title: str, rows: Sequence[Row], by_group: ByGroup) -> None:
    flat = [pair for pairs in by_group.values() for pair in pairs]
    sizes = [abs(error) for error, _ in flat]
    drams = [abs(error) for _, error in flat if error is not None]
    mean = fmean(row.smact for row in rows)
    print(
        f"{title}: {len(rows)} runs in {len(by_group)} groups, each judged by a fit of the others"
    )
    print(f"  SM activity: mean error {fmean(sizes):.3f}, bias {fmean(e for e, _ in flat):+.3f},"
          f" most {max(sizes):.2f}; {COVER:.0%} within {quantile(sizes, COVER):.3f}")  # fmt: skip
    print(f"  the mean of all as answer: {fmean(abs(row.smact - mean) for row in rows):.3f}")
    if drams:
        print(f"  DRAM activity: mean error {fmean(drams):.3f}, most {max(drams):.2f}")
    covered = []
    for group, pairs in by_group.items():
        width = quantile([abs(e) for g, p in by_group.items() if g != group for e, _ in p], COVER)
        covered += [abs(error) <= width for error, _ in pairs]
    print(f"  interval from the other groups covers {fmean(covered):.1%}")
    for group, pairs in by_group.items():
        told = " ".join(f"{error:+.2f}" for error, _ in pairs[:6])
        print(f"    {group}: {told}{' ...' if len(pairs) > 6 else ''}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("texts", type=Path)
    folder = parser.parse_args().texts
    if not (SHARED / "facts").is_dir():
        print(f"{SHARED}: no measured rows there: set COLOC_SHARED", file=sys.stderr)
        return 1
    large = workloads(SHARED / "facts" / "activity.csv", make(folder))
    small = mlps(SHARED / "data" / "mlp_a100_dev.csv")
    report("workloads", large, kept_out(large))
    foreign = errors(small, fit(large))
    print(
        f"MLPs by the workloads' coefficients: mean error {fmean(abs(e) for e, _ in foreign):.3f}"
    )
    report("MLPs", small, kept_out(small, MLP_ROWS))
    for title, rows in (("workloads", large), ("mlp", random.Random(1).sample(small, MLP_ROWS))):
        found = fit(rows)
        print(title, ", ".join(f"{n}={v:.3g}" for n, v in zip(NAMES, astuple(found), strict=True)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
