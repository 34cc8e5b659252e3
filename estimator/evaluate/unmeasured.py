# SPDX-License-Identifier: Apache-2.0
"""timm's models from files that no measured model comes from: texts against recordings, synthetic
labels, nothing here is measured on a card. Needs torch, torchinfo and timm."""

from collections.abc import Collection
from pathlib import Path

from estimator.evaluate import recorded, texts
from estimator.evaluate.architectures import Judged, asked
from estimator.evaluate.recorded import prepared
from estimator.evaluate.runs import OPTIMIZER
from slurm_coloc.estimate.api import TrainingOptions, estimate
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.estimate.replay.stack import Stack

BATCHES = (8, 32, 128)
MOST = 4  #: models of one file, spread evenly over its names


def models(measured: Collection[str]) -> list[str]:
    """Names of models from files of which nothing is in ``measured``."""
    prepared()
    import timm

    found = []
    for file in timm.list_modules():
        names = sorted(timm.list_models(module=file))
        if names and not set(names) & set(measured):
            few = min(MOST, len(names))
            found += [names[place * len(names) // few] for place in range(few)]
    return found


def make(names: list[str], cache: Path) -> None:
    """Texts and recordings; those that are there stay."""
    texts.make(names, cache)
    recorded.record(names, cache)


def judged(names: list[str], cache: Path) -> list[Judged]:
    """Each model at BATCHES, without a context; those that have no recording are left out."""
    found = []
    for name in names:
        path = cache / f"{name}.{recorded.KIND}"
        if not path.exists():
            continue
        summary = parse_summary(path.read_text(encoding="utf-8"))
        for batch in BATCHES:
            options = TrainingOptions(batch_size=batch, optimizer=OPTIMIZER)
            answer = estimate(summary, options, stack=Stack(0), estimator="traced")
            if answer.memory_mib is None:
                continue
            told = {kind: asked(cache / f"{name}.{kind}", options) for kind in texts.KINDS}
            found.append(Judged(f"{name} at {batch}", answer.memory_mib, told))
    return found
