# SPDX-License-Identifier: Apache-2.0
"""How far measured runs at some batch sizes correct the estimate at another one.

    python -m estimator.evaluate.history CACHE [--kind default]      texts as of estimator.evaluate

For each model and each of its measured batch sizes: the estimate there, times the largest ratio of
measured over estimated (above the context) at 1, 2 or 3 of its other batch sizes. Prints the
margins which that needs (core/decide/learned.TRANSFER), the same from other families of models, and
how the shipped rule does: one run each is known at the other batch sizes.
"""

import argparse
import random
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from estimator.evaluate.recorded import KIND as RECORDED
from estimator.evaluate.runs import CONTEXT_MIB, FOLDINGS, FOLDS, Judged, judge, quantile
from estimator.evaluate.texts import KINDS
from estimator.measured import SHARED, TIMM, family, timm_rows
from slurm_coloc.core.decide.decision import Estimate
from slurm_coloc.core.decide.learned import FLOOR_MIB, Past, correct
from slurm_coloc.core.decide.levels import LEVELS


class Case(NamedTuple):
    """A run to be told from ``known`` runs of the same model at other batch sizes."""

    run: Judged
    known: tuple[Judged, ...]

    @property
    def score(self) -> float:
        """The margin on the largest ratio that this run would have needed."""
        ratio = max((one.measured_mib - CONTEXT_MIB) / one.above_mib for one in self.known)
        return (self.run.measured_mib - CONTEXT_MIB - FLOOR_MIB) / (ratio * self.run.above_mib)


def cases(judged: Sequence[Judged], many: int) -> Iterator[Case]:
    """Every run with every choice of ``many`` others of its model."""
    by_model: dict[str, list[Judged]] = defaultdict(list)
    for one in judged:
        by_model[one.model].append(one)
    for runs in by_model.values():
        for run in runs:
            others = [one for one in runs if one is not run]
            for known in combinations(others, many):
                yield Case(run, known)


def kept_out(found: Sequence[Case], level: float, seed: int) -> float:
    """Part of the runs above margins that come from other families."""
    names = sorted({family(one.run.model) for one in found})
    random.Random(seed).shuffle(names)
    above = 0
    for fold in range(FOLDS):
        held = set(names[fold::FOLDS])
        scores = [one.score for one in found if family(one.run.model) not in held]
        margin = quantile(scores, level)
        above += sum(one.score > margin for one in found if family(one.run.model) in held)
    return above / len(found)


def shipped(found: Sequence[Case]) -> str:
    """The rule as it is shipped, beside the estimate alone."""
    errors, own_errors, above, over, own_over = [], [], 0, 0, 0
    for case in found:
        run = case.run
        past = [
            Past(one.batch, 1, one.measured_mib, one.measured_mib, 0, 0, one.mib, CONTEXT_MIB)
            for one in case.known
        ]
        alone = Estimate("text", run.mib, run.upper_mib)
        learned = correct(alone, run.batch, CONTEXT_MIB, past)
        answer = learned.estimate if learned else alone
        errors.append(abs(answer.memory_mib / run.measured_mib - 1))
        own_errors.append(abs(run.error))
        above += answer.upper_mib < run.measured_mib
        over += answer.upper_mib - run.measured_mib
        own_over += run.upper_mib - run.measured_mib
    many = len(found)
    return (
        f"  shipped: median error {100 * quantile(errors, 0.5):.2f} %"
        f" (without history {100 * quantile(own_errors, 0.5):.2f} %),"
        f" above the bound {100 * above / many:.2f} %, reserved too much {over / many:.0f} MiB"
        f" (without {own_over / many:.0f})"
    )


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("cache", type=Path, help="folder of the texts")
    parser.add_argument("--kind", choices=(*KINDS, RECORDED), default="full")
    args = parser.parse_args()
    estimator = "traced" if args.kind == RECORDED else "text"
    judged: list[Judged] = []
    for model, runs in sorted(timm_rows(SHARED / TIMM).items()):
        path = args.cache / f"{model}.{args.kind}"
        if path.exists():
            judged += judge(model, path.read_text(encoding="utf-8"), runs, estimator)
    if not judged:
        print(f"no texts in {args.cache}: make them first", file=sys.stderr)
        return 1
    print(f"{len(judged)} runs of {len({one.model for one in judged})} models")
    print(f"batch sizes known, cases, margin at {', '.join(str(level) for level in LEVELS)}")
    for many in (1, 2, 3):
        found = list(cases(judged, many))
        scores = [one.score for one in found]
        margins = " ".join(f"{quantile(scores, level):.3f}" for level in LEVELS)
        apart = " ".join(f"{100 * kept_out(found, 0.99, seed):.2f}" for seed in range(FOLDINGS))
        print(f"{many} {len(found):6}  {margins}")
        print(f"  above the 99 % margin of other families: {apart} %")
        print(shipped(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
