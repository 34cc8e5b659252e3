# SPDX-License-Identifier: Apache-2.0
"""Training rows from the cache: features of slurm_coloc, labels by replay.

Labels are synthetic: what the `traced` estimator says of the recorded step, with a context of
CONTEXT_MIB. Each batch size of a model is a row, with an optimizer drawn for it.
"""

import json
import pickle
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch

from estimator.gpumemnet.collect import Collected, at
from estimator.gpumemnet.fit import Rows
from slurm_coloc.estimate.baselines.nets.classes import CLASSES, CONTEXT_MIB
from slurm_coloc.estimate.baselines.nets.features import LENGTH, TUPLE, tuples, vector
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.estimate.replay.training import lasting, training
from slurm_coloc.estimate.summary import Summary

OPTIMIZERS = ("adam", "adam", "adamw", "sgd", "sgd-momentum", "sgd-momentum", "adafactor")
PER_MODEL = 8
LARGEST_BATCH = 8192
LARGEST_MIB = 200_000  # rows above it teach nothing: no GPU has as much


@dataclass(frozen=True)
class Set:
    """Rows of models, and the group of each row."""

    rows: Rows
    groups: tuple[str, ...]

    def part(self, held: set[str]) -> tuple["Set", "Set"]:
        """Without and with the groups in ``held``."""
        inside = [i for i, group in enumerate(self.groups) if group in held]
        outside = [i for i, group in enumerate(self.groups) if group not in held]
        return self.take(outside), self.take(inside)

    def take(self, index: list[int]) -> "Set":
        return Set(self.rows.take(torch.tensor(index, dtype=torch.long)),
                   tuple(self.groups[i] for i in index))  # fmt: skip


def label(kept: Collected, batch: int, optimizer: str) -> float:
    """MiB that nvidia-smi would show, as estimators/traced.py has it."""
    stack, step = Stack(CONTEXT_MIB), at(kept.step, batch)
    plain = kept.summary.family == "mlp"
    events = training(step, optimizer, stack.workspace, blas=stack.blas, ahead=not plain).sizes
    return float(stack.peak_mib(events, None if plain else lasting(step, optimizer)))


def of(asked: list[tuple[Summary, int, str]], mib: list[float]) -> Rows:
    """Rows of (summary, batch, optimizer)."""
    features = torch.tensor([vector(*one) for one in asked])
    tokens = torch.zeros(len(asked), LENGTH, TUPLE)
    for i, (summary, batch, _) in enumerate(asked):
        found = torch.tensor(tuples(summary, batch))
        tokens[i, : len(found)] = found
    return Rows(features, tokens, torch.tensor(mib))


def _batch(draw: Random, family: str, least: float, more: float) -> int:
    """A batch size for a memory drawn evenly, or evenly in its logarithm, over all classes.
    ``least``: MiB at a batch of 1; ``more``: MiB a sample."""
    classes = CLASSES[family.removeprefix("timm-")]
    top = 1.05 * classes.step * classes.count
    aim = draw.uniform(CONTEXT_MIB, top)
    if draw.random() < 0.5:
        aim = CONTEXT_MIB * (top / CONTEXT_MIB) ** draw.random()
    return max(1, min(LARGEST_BATCH, round((aim - least) / more)))


def load(cache: Path, family: str) -> Set:
    """All models of a family; labels are kept beside the models, as they take longest."""
    folder = cache / family
    per = PER_MODEL if not family.startswith("timm") else 2 * PER_MODEL
    store = folder / "labels.json"
    known: dict[str, float] = json.loads(store.read_text()) if store.exists() else {}
    asked, mib, groups = [], [], []
    for path in sorted(folder.glob("*.pickle")):
        one: Collected = pickle.loads(path.read_bytes())
        draw = Random(path.name)
        ends = [f"{path.stem} {batch} sgd" for batch in (1, 65)]
        for key, batch in zip(ends, (1, 65), strict=True):
            if key not in known:
                known[key] = label(one, batch, "sgd")
        least, more = known[ends[0]], max(0.01, (known[ends[1]] - known[ends[0]]) / 64)
        for _ in range(per):
            optimizer = draw.choice(OPTIMIZERS)
            batch = _batch(draw, family, least, more)
            key = f"{path.stem} {batch} {optimizer}"
            if key not in known:
                known[key] = label(one, batch, optimizer)
            if known[key] <= LARGEST_MIB:
                asked.append((one.summary, batch, optimizer))
                mib.append(known[key])
                groups.append(one.group)
    store.write_text(json.dumps(known))
    return Set(of(asked, mib), tuple(groups))
