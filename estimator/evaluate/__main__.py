# SPDX-License-Identifier: Apache-2.0
"""Tables of the estimators against measured runs.

    python -m estimator.evaluate texts CACHE       torchinfo's texts (torch, timm, torchinfo)
    python -m estimator.evaluate texts CACHE --kind torchsummary    five models of each family
    python -m estimator.evaluate text CACHE        the text tier on them
    python -m estimator.evaluate text CACHE --kind default --worst 20
    python -m estimator.evaluate recorded CACHE    the recorded tier (torch, timm); makes recordings
    python -m estimator.evaluate configs18 CACHE   all estimators on the thesis' 18 configurations;
                                                   makes their texts (torch, timm, transformers)
    python -m estimator.evaluate workloads CACHE   the same on those of its Table 6.2
    python -m estimator.evaluate picture CACHE --plot FILE.png     text and recorded tier, drawn
    python -m estimator.evaluate transformers CACHE    texts of its architectures against their
                                                   recordings (torch, torchinfo, transformers)
    python -m estimator.evaluate mlp               all estimators on its measured MLPs

The measured runs are no part of this tree: COLOC_SHARED names their folder, ../shared without it.
"""

import argparse
import math
import random
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from estimator.evaluate import architectures, configs, judging, mlp, picture, recorded
from estimator.evaluate.texts import FLAT, KINDS, make, make_flat
from estimator.measured import SHARED, TIMM, family, timm_rows
from slurm_coloc.estimate.api import TrainingOptions, estimate
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.estimate.replay.margin import FLOOR_MIB, Tier, upper_mib
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.sim.plot.canvas import check_path

#: of the card that the runs were measured on, fitted to them
CONTEXT_MIB = 1735
#: what the runs most likely trained with: residuals do not grow with the parameters then
OPTIMIZER = "sgd-momentum"
#: parts that the families are cut into, and how often that is drawn
FOLDS, FOLDINGS = 5, 4
#: kinds of runs with a table of all estimators
OTHERS = ("configs18", "workloads", "mlp")
PICTURE = "picture"
TRANSFORMERS = "transformers"


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
    def doubtful(self) -> bool:
        """Its bound is wider than a known model's."""
        known = upper_mib(self.mib, CONTEXT_MIB, Tier.TEXT)
        return self.upper_mib > known + 1

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


def kept_out(judged: Sequence[Judged], seed: int) -> str:
    """What margins promise to families that they were not taken from: the 99 % quantile of four
    fifths of the families, held against the last fifth, each fifth in turn. Runs whose bound is
    wider than that of a known model (see replay/margin) have a quantile of their own."""
    names = sorted({family(one.model) for one in judged})
    random.Random(seed).shuffle(names)
    under, over = 0, 0.0
    for fold in range(FOLDS):
        held = set(names[fold::FOLDS])
        for doubtful in (False, True):
            ones = [one for one in judged if one.doubtful is doubtful]
            scores = sorted(one.score for one in ones if family(one.model) not in held)
            if not scores:
                continue
            margin = scores[min(len(scores) - 1, math.ceil(0.99 * (len(scores) + 1)) - 1)]
            for one in ones:
                if family(one.model) in held:
                    spare = CONTEXT_MIB + FLOOR_MIB + margin * one.above_mib - one.measured_mib
                    under, over = under + (spare < 0), over + spare
    many = len(judged)
    return (
        f"  margins from other families ({len(names)} in {FOLDS} parts, drawn with {seed}):"
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


def _picture(cache: Path, path: Path) -> int:
    """Each way to estimate that has texts in the cache."""
    runs = timm_rows(SHARED / TIMM)
    panels = []
    for title, kind, estimator in (
        ("from the text", "full", "text"),
        ("recorded", recorded.KIND, "traced"),
    ):
        points: list[picture.Point] = []
        for model in sorted(runs):
            file = cache / f"{model}.{kind}"
            if file.exists():
                text = file.read_text(encoding="utf-8")
                family_of = parse_summary(text).family
                for one in judge(model, text, runs[model], estimator):
                    told = (one.measured_mib, one.mib, one.upper_mib)
                    points.append(picture.Point(family_of, *told))
        if points:
            panels.append((f"{title}: {len(points)} runs", points))
    if not panels:
        print(f"no texts in {cache}: make them first", file=sys.stderr)
        return 1
    picture.against(panels, path)
    print(f"{path}: {', '.join(title for title, _ in panels)}")
    return 0


def _configurations(what: str, cache: Path, every: bool, plot: Path | None) -> int:
    left: list[str] = []
    if what == "configs18":
        runs = configs.configs18(SHARED / configs.CONFIGS18)
    else:
        runs, left = configs.workloads(SHARED / configs.WORKLOADS)
    configs.make([run.text for run in runs], cache)
    cases = configs.judged(runs, cache, Stack(CONTEXT_MIB))
    print(f"{len(cases)} measured runs, context {CONTEXT_MIB} MiB; the bound of a method that has")
    print(f"none is its figure; {configs.ASSUMED}\n")
    print(judging.table(cases))
    if plot is not None:
        picture.methods(cases, plot)
    print("\n".join(f"left out: {one}" for one in left))
    if every:
        print()
        print(judging.each(cases, ("text", "traced")))
    return 0


def _transformers(cache: Path, every: bool) -> int:
    architectures.make(cache)
    for models, what in (
        (architectures.MODELS, "the rules were mended with"),
        (architectures.KEPT_BACK, "were first looked at when the rules stood"),
    ):
        cases = architectures.judged(models, cache, "adamw")
        print(f"against recordings (nothing measured), architectures that {what}: {len(cases)}\n")
        print(architectures.table(cases))
        print()
        if every:
            print(architectures.each(cases))
    return 0


def _mlp(every: bool) -> int:
    rows = mlp.read(SHARED / mlp.MLP)
    cases, context, runs = mlp.judged(rows)
    print(
        f"{len(cases)} measured MLPs, none of which the context was taken from: {context} MiB for"
    )
    print(f"the estimators, {runs} MiB for the runs as they were run\n")
    print(judging.table(cases))
    print("\n".join(mlp.classes(cases, name) for name in judging.names(cases)))
    other, context, runs = mlp.judged(rows, estimators=False, first=1)
    print(f"\nThe other {len(other)} ({context} and {runs} MiB), then all {len(rows)}")
    for part in (other, cases + other):
        print("\n".join(mlp.classes(part, name) for name in ("text", mlp.AS_RUN)))
    if every:
        print(judging.each(cases, ("text", mlp.AS_RUN)))
    return 0


def _few(runs: Iterable[str], most: int = 5) -> list[str]:
    """Some models of each family, alike spread: those that take long are not all made."""
    families: dict[str, list[str]] = {}
    for model in sorted(runs):
        families.setdefault(family(model), []).append(model)
    return [
        ones[place * len(ones) // min(most, len(ones))]
        for ones in families.values()
        for place in range(min(most, len(ones)))
    ]


def main() -> int:
    """Make texts, or judge by them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "what", choices=("texts", "text", "recorded", PICTURE, TRANSFORMERS, *OTHERS)
    )
    parser.add_argument("cache", type=Path, nargs="?", help="folder of the texts")
    parser.add_argument("--kind", choices=(*KINDS, FLAT), default="full")
    parser.add_argument("--estimator", default="text")
    parser.add_argument("--worst", type=int, default=10, help="models to list")
    parser.add_argument("--each", action="store_true", help="configurations, MLPs: a line a run")
    parser.add_argument("--plot", type=Path, help="configurations, picture: the file to draw")
    args = parser.parse_args()
    if args.plot is not None:
        check_path(args.plot)
    if args.what == "mlp":
        return _mlp(args.each)
    if args.cache is None:
        parser.error("a folder for the texts, please")
    if args.what == TRANSFORMERS:
        return _transformers(args.cache, args.each)
    if args.what in OTHERS:
        return _configurations(args.what, args.cache, args.each, args.plot)
    if args.what == PICTURE:
        return _picture(args.cache, args.plot or Path("estimates.png"))
    runs = timm_rows(SHARED / TIMM)
    if args.what == "texts":
        if args.kind == FLAT:
            make_flat(_few(runs), args.cache)
        else:
            make(sorted(runs), args.cache)
        return 0
    if args.what == "recorded":
        recorded.record(sorted(runs), args.cache)
        args.kind, args.estimator = recorded.KIND, "traced"
        print(recorded.seconds(args.cache))
    judged: list[Judged] = []
    for model in sorted(runs):
        path = args.cache / f"{model}.{args.kind}"
        if path.exists():
            judged += judge(model, path.read_text(encoding="utf-8"), runs[model], args.estimator)
    if not judged:
        print(f"no texts in {args.cache}: make them first", file=sys.stderr)
        return 1
    print(table(judged))
    for seed in range(FOLDINGS):
        print(kept_out(judged, seed))
    print("\n".join(worst(judged, args.worst)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
