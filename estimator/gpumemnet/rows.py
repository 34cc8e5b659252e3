# SPDX-License-Identifier: Apache-2.0
"""Training rows from the cache: features of slurm_coloc, labels by replay.

Labels are synthetic: the recorded step, three times, through the model of PyTorch's allocator, plus
a context of CONTEXT_MIB and the convolutions' workspaces. Each batch size of a model is a row, with
an optimizer drawn for it.
"""

import json
import pickle
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch

from estimator.gpumemnet.collect import Kept, at
from estimator.gpumemnet.fit import Rows
from slurm_coloc.estimate.nets.classes import CONTEXT_MIB
from slurm_coloc.estimate.nets.features import LENGTH, TUPLE, tuples, vector
from slurm_coloc.estimate.replay.allocator import MIB, replay
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.estimate.replay.training import training
from slurm_coloc.estimate.summary import Summary

OPTIMIZERS = ("adam", "adam", "adamw", "sgd", "sgd-momentum", "sgd-momentum", "adafactor")
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


def label(kept: Kept, batch: int, optimizer: str) -> float:
    """MiB that nvidia-smi would show."""
    stack = Stack(CONTEXT_MIB)
    events = training(at(kept.step, batch), optimizer, stack.workspace)
    return CONTEXT_MIB + replay(events).reserved / MIB


def of(asked: list[tuple[Summary, int, str]], mib: list[float]) -> Rows:
    """Rows of (summary, batch, optimizer)."""
    features = torch.tensor([vector(*one) for one in asked])
    tokens = torch.zeros(len(asked), LENGTH, TUPLE)
    for i, (summary, batch, _) in enumerate(asked):
        found = torch.tensor(tuples(summary, batch))
        tokens[i, : len(found)] = found
    return Rows(features, tokens, torch.tensor(mib))


def load(cache: Path, family: str) -> Set:
    """All models of a family; labels are kept beside the models, as they take longest."""
    folder = cache / family
    store = folder / "labels.json"
    known: dict[str, float] = json.loads(store.read_text()) if store.exists() else {}
    asked, mib, groups = [], [], []
    for path in sorted(folder.glob("*.pickle")):
        one: Kept = pickle.loads(path.read_bytes())
        draw = Random(path.name)
        for batch in dict.fromkeys((*one.wanted, *(draw.randint(1, x) for x in one.wanted))):
            optimizer = draw.choice(OPTIMIZERS)
            key = f"{path.stem} {batch} {optimizer}"
            if key not in known:
                known[key] = label(one, batch, optimizer)
            if known[key] <= LARGEST_MIB:
                asked.append((one.summary, batch, optimizer))
                mib.append(known[key])
                groups.append(one.group)
    store.write_text(json.dumps(known))
    return Set(of(asked, mib), tuple(groups))
