# SPDX-License-Identifier: Apache-2.0
"""The margin that each tier would have needed on measured runs, at several levels.

    python -m estimator.evaluate.levels CACHE [--kind default]       texts as of estimator.evaluate
    python -m estimator.evaluate.levels CACHE --kind recorded        recordings, likewise

`of 99 %` is what replay/margin.SHAPE has: what the margin adds, over what it adds at 99 %.
"""

import argparse
import sys
from collections import defaultdict
from pathlib import Path

from estimator.evaluate.recorded import KIND as RECORDED
from estimator.evaluate.runs import Judged, judge, quantile
from estimator.evaluate.texts import KINDS
from estimator.measured import SHARED, TIMM, timm_rows
from slurm_coloc.core.decide.levels import LEVELS
from slurm_coloc.estimate.replay.margin import Tier, margin


def tier_of(run: Judged) -> Tier | None:
    """The tier whose margin the run's bound has; None where its bound is not made by one."""
    tiers = [tier for tier in Tier if abs(margin(tier, 0.99) - run.margin) < 2 / run.above_mib]
    return tiers[0] if tiers else None


def main() -> int:
    """Print one line for each tier."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("cache", type=Path, help="folder of the texts")
    parser.add_argument("--kind", choices=(*KINDS, RECORDED), default="full")
    args = parser.parse_args()
    scores: dict[Tier, list[float]] = defaultdict(list)
    for model, runs in sorted(timm_rows(SHARED / TIMM).items()):
        path = args.cache / f"{model}.{args.kind}"
        if not path.exists():
            continue
        estimator = "traced" if args.kind == RECORDED else "text"
        for run in judge(model, path.read_text(encoding="utf-8"), runs, estimator):
            if tier := tier_of(run):
                scores[tier].append(run.score)
    if not scores:
        print(f"no texts in {args.cache}: make them first", file=sys.stderr)
        return 1
    print(f"margins at {', '.join(str(level) for level in LEVELS)}")
    for tier, found in scores.items():
        margins = [quantile(found, level) for level in LEVELS]
        at_99 = margins[LEVELS.index(0.99)] - 1
        print(f"{tier}: {len(found)} runs  {' '.join(f'{one:.3f}' for one in margins)}")
        print(f"  of 99 %  {' '.join(f'{(one - 1) / at_99:.2f}' for one in margins)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
