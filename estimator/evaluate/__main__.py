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
    python -m estimator.evaluate unmeasured CACHE      the same of timm's files without a measured
                                                   model
    python -m estimator.evaluate mlp               all estimators on its measured MLPs
    python -m estimator.evaluate ddp               what DDP adds, on the CPU (torch, timm,
                                                   transformers)

The measured runs are no part of this tree: COLOC_SHARED names their folder, ../shared without it.
They are of a timm of about 1.0.9; a model that the installed timm makes another way is named and
counted apart (see published), where its recording is in CACHE. A folder is for one timm.
"""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from estimator.evaluate import (
    architectures,
    configs,
    ddp,
    drawn,
    judging,
    mlp,
    picture,
    published,
    recorded,
    unmeasured,
)
from estimator.evaluate.runs import CONTEXT_MIB, FOLDINGS, Judged, judge, kept_out, table, worst
from estimator.evaluate.texts import FLAT, KINDS, make, make_flat
from estimator.measured import SHARED, TIMM, family, published_rows, timm_rows
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.sim.plot.canvas import check_path

#: kinds of runs with a table of all estimators
OTHERS = ("configs18", "workloads", "mlp")
PICTURE = "picture"
TRANSFORMERS = "transformers"
UNMEASURED = "unmeasured"
DDP = "ddp"


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
        (drawn.MODELS, "the rules were mended with"),
        (drawn.KEPT_BACK, "were first looked at when the rules stood"),
    ):
        cases = architectures.judged(models, cache, "adamw")
        print(f"against recordings (nothing measured), architectures that {what}: {len(cases)}\n")
        print(architectures.table(cases))
        print()
        if every:
            print(architectures.each(cases))
    return 0


def _elsewhere(cache: Path, every: bool) -> int:
    names = unmeasured.models(timm_rows(SHARED / TIMM).keys())
    unmeasured.make(names, cache)
    cases = unmeasured.judged(names, cache)
    print(f"against recordings (nothing measured), {len(names)} timm models from files of which no")
    print(f"model was measured, {len(cases)} runs, models of {published.version(cache)}\n")
    print(architectures.table(cases))
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


def _timm(cache: Path, kind: str, estimator: str, many: int) -> int:
    """Of all models that have a text in the cache; those that are not the measured ones apart."""
    judged: list[Judged] = []
    for model, runs in sorted(timm_rows(SHARED / TIMM).items()):
        path = cache / f"{model}.{kind}"
        if path.exists():
            judged += judge(model, path.read_text(encoding="utf-8"), runs, estimator)
    if not judged:
        print(f"no texts in {cache}: make them first", file=sys.stderr)
        return 1
    recordings = {
        model: path.read_text(encoding="utf-8")
        for model in {one.model for one in judged}
        if (path := cache / f"{model}.{recorded.KIND}").exists()
    }
    apart = published.others(recordings, published_rows(SHARED / TIMM))
    same = [one for one in judged if one.model not in apart]
    print(f"models of {published.version(cache)}")
    print(table(same))
    for level in (0.99, 0.995):
        for seed in range(FOLDINGS):
            print(kept_out(same, seed, level))
    print("\n".join(worst(same, many)))
    if not recordings:
        print("no recordings here: whether these are the models that were measured is not known")
        return 0
    print(published.told(judged, apart))
    if apart:
        print(f"with them: {table(judged)}")
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


def _ddp() -> int:
    """Each training as soon as it is compared; 1 where one is off by more than 1 %."""
    print(ddp.HEAD, flush=True)
    worst = 0.0
    for one in ddp.compared():
        print(ddp.line(one), flush=True)
        worst = max(worst, abs(one.off))
    return int(worst > 0.01)


def main() -> int:
    """Make texts, or judge by them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "what",
        choices=("texts", "text", "recorded", PICTURE, TRANSFORMERS, UNMEASURED, DDP, *OTHERS),
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
    if args.what == DDP:
        return _ddp()
    if args.cache is None:
        parser.error("a folder for the texts, please")
    if args.what == TRANSFORMERS:
        return _transformers(args.cache, args.each)
    if args.what == UNMEASURED:
        return _elsewhere(args.cache, args.each)
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
    return _timm(args.cache, args.kind, args.estimator, args.worst)


if __name__ == "__main__":
    sys.exit(main())
