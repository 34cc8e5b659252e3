# SPDX-License-Identifier: Apache-2.0
"""Trains, judges and exports the networks that are shipped.

A family's rows are those of the generator and, for CNNs and Transformers, those of published models
(timm) with the same synthetic labels. They are judged twice:

- on synthetic rows: one fold in FOLDS of all models is kept back, by model family for published
  ones, by model for drawn ones;
- on measured rows: the published models of the fold that was kept back, at the batch sizes that
  were measured, their features from the text that torchinfo prints.

What is shipped has seen all folds; its figures are those of the folds.
"""

import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from estimator.gpumemnet import fit, ranges
from estimator.gpumemnet.export import export
from estimator.gpumemnet.fit import Recipe, Rows
from estimator.gpumemnet.measure import Score, mean, score
from estimator.gpumemnet.rows import Set, load, of
from estimator.measured import family as timm_family
from estimator.measured import timm_rows
from slurm_coloc.errors import SummaryError
from slurm_coloc.estimate.baselines.nets.classes import CLASSES, NETWORKS, file_name
from slurm_coloc.estimate.parsers import parse_summary

FOLDS = 3
RECIPES = {
    "mlp": Recipe(batch=128, smoothing=0.02, far=4.0, bucket=4),
    "transformer": Recipe(batch=64, smoothing=0.02, far=4.0, bucket=4),
}
#: by network and family: MLPs' rows are short, and their classes narrow
EPOCHS = {
    ("mlp", "mlp"): 75, ("mlp", "cnn"): 25, ("mlp", "transformer"): 12,
    ("transformer", "mlp"): 24, ("transformer", "cnn"): 8, ("transformer", "transformer"): 8,
}  # fmt: skip
# Of Transformers' labels nine in ten are within 5 % of what was measured, and features hide more.
BLUR = {"transformer": 0.05}
MAKE: dict[str, Callable[..., nn.Module]] = {
    "mlp": fit.ensemble, "transformer": fit.transformer,
}  # fmt: skip


def _only(rows: Rows, network: str) -> Rows:
    return Rows(rows.features, None, rows.mib) if network == "mlp" else rows


def _train(some: Set, family: str, network: str, seed: int, held: int = 10) -> nn.Module:
    """One group in ``held`` picks the epoch."""
    torch.manual_seed(seed)
    groups = sorted(set(some.groups))
    random.Random(seed).shuffle(groups)
    train, valid = some.part(set(groups[:: max(2, held)]))
    classes, recipe = CLASSES[family], RECIPES[network]
    return MAKE[network](
        _only(train.rows, network),
        _only(valid.rows, network),
        classes.step,
        classes.count,
        replace(
            recipe,
            epochs=EPOCHS[network, family],
            blur=BLUR.get(family, 0.0),
        ),
    )


def together(cache: Path, family: str) -> Set:
    """The generator's rows and those of published models."""
    sets = [load(cache, name) for name in (family, f"timm-{family}") if (cache / name).is_dir()]
    tokens = [one.rows.tokens for one in sets if one.rows.tokens is not None]
    rows = Rows(
        torch.cat([one.rows.features for one in sets]),
        torch.cat(tokens),
        torch.cat([one.rows.mib for one in sets]),
    )
    return Set(rows, tuple(group for one in sets for group in one.groups))


def measured(texts: Path, table: Path, family: str) -> Set:
    """Measured rows of published models whose text lies in ``texts`` as NAME.full."""
    asked, mib, groups = [], [], []
    for model, found in sorted(timm_rows(table).items()):
        path = texts / f"{model}.full"
        if not path.is_file():
            continue
        try:
            summary = parse_summary(path.read_text(encoding="utf-8"))
        except SummaryError as err:
            print(f"{model}: {err}")
            continue
        if summary.family == family:
            asked += [(summary, batch, "sgd-momentum") for batch, _ in found]
            mib += [float(peak) for _, peak in found]
            groups += [f"timm-{timm_family(model)}"] * len(found)
    return Set(of(asked, mib), tuple(groups))


def folds(groups: set[str]) -> list[set[str]]:
    order = sorted(groups)
    random.Random(0).shuffle(order)
    return [set(order[k::FOLDS]) for k in range(FOLDS)]


def judge(
    every: Set, real: Set | None, family: str, network: str, parts: int = FOLDS
) -> tuple[Score, Score | None]:
    """Means over the folds, on synthetic and on measured rows."""
    classes = CLASSES[family]
    made, seen = [], []
    for k, held in enumerate(folds(set(every.groups) | set(real.groups if real else ()))[:parts]):
        outside, inside = every.part(held)
        net = _train(outside, family, network, seed=k)
        for kept, found in ((inside, made), (real.part(held)[1] if real else None, seen)):
            if kept is None or not len(kept.rows):
                continue
            told = fit.answers(net, _only(kept.rows, network))
            found.append(score(told, kept.rows.mib, classes.step, classes.count))
    return mean(made), mean(seen) if seen else None


def main(
    cache: Path, shared: Path, texts: Path | None, family: str, out: Path, judged: bool, parts: int
) -> int:
    """Train both networks of a family; with ``judged`` also the first ``parts`` folds."""
    every = together(cache, family)
    table = shared / "data" / "timm_a100_dev.csv"
    real = None
    if texts is not None and family != "mlp" and table.is_file():
        real = measured(texts, table, family)
    print(
        f"{family}: {len(every.rows)} synthetic rows of {len(set(every.groups))} groups,"
        f" {len(real.rows) if real else 0} measured rows",
        flush=True,
    )
    for network in NETWORKS:
        begin = time.monotonic()
        if judged:
            made, seen = judge(every, real, family, network, parts)
            print(f"{network:<11} synthetic, kept back: {made}", flush=True)
            if seen:
                print(f"{network:<11} measured, kept back:  {seen}", flush=True)
        net = _train(every, family, network, seed=99)
        out.mkdir(parents=True, exist_ok=True)
        off = export(net, _only(every.rows, network), out / file_name(network, family))
        took = time.monotonic() - begin
        print(f"{network:<11} exported, differs by {off:.1e} from torch; {took:.0f} s", flush=True)
    low, high = every.rows.features.min(0).values, every.rows.features.max(0).values
    torch.save((low, high), cache / f"{family}.ranges")
    ranges.write(cache, out)
    return 0
