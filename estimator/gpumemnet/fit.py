# SPDX-License-Identifier: Apache-2.0
"""Trains a network on class labels; the epoch with the least loss on the validation rows counts."""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from estimator.gpumemnet.networks import Ensemble, TupleTransformer


@dataclass(frozen=True)
class Rows:
    """Features (rows, n), tokens (rows, length, n) or None, and measured or replayed MiB (rows)."""

    features: Tensor
    tokens: Tensor | None
    mib: Tensor

    def take(self, index: Tensor) -> "Rows":
        tokens = None if self.tokens is None else self.tokens[index]
        return Rows(self.features[index], tokens, self.mib[index])

    def __len__(self) -> int:
        return len(self.mib)


@dataclass(frozen=True)
class Recipe:
    """Epochs, rows a step, largest learning rate, and the share of a label that is spread over the
    other classes; ``far``: deviations beyond which features count no further; ``bucket``: steps
    whose rows are sorted by length (few where rows of one model must not meet in a step); ``blur``:
    see aims."""

    epochs: int = 120
    batch: int = 128
    rate: float = 3e-3
    smoothing: float = 0.0
    far: float = 1e9
    bucket: int = 16
    blur: float = 0.0


def labels(mib: Tensor, step: int, classes: int) -> Tensor:
    """Class k holds [k * step, (k + 1) * step) MiB; the last one everything above."""
    return (mib // step).long().clamp(0, classes - 1)


def aims(mib: Tensor, step: int, classes: int, blur: float) -> Tensor:
    """What a network is to say: a class each, or, where labels are off by ``blur`` (a normal
    deviation, as a ratio), the share of a label's distribution in every class: a row beside an edge
    belongs to both sides."""
    if not blur:
        return labels(mib, step, classes)
    edges = torch.arange(1, classes) * float(step)
    below = torch.special.ndtr((edges.log() - mib.log()[:, None]) / blur)
    ends = torch.zeros(len(mib), 1), torch.ones(len(mib), 1)
    return torch.cat((ends[0], below, ends[1]), 1).diff(dim=1)


def classes_for(mib: Tensor, step: int) -> int:
    return int(mib.max() // step) + 1


def ensemble(train: Rows, valid: Rows, step: int, classes: int, recipe: Recipe) -> Ensemble:
    """The 13 MLPs, each by its own loss, in one loop."""
    net = Ensemble(train.features, classes, recipe.far)

    def loss(rows: Rows) -> Tensor:
        aim = aims(rows.mib, step, classes, recipe.blur)
        parts = net.members_logits(rows.features)
        total = sum(F.cross_entropy(x, aim, label_smoothing=recipe.smoothing) for x in parts)
        return total / len(parts)

    _train(net, loss, train, valid, recipe)
    return net


def transformer(
    train: Rows, valid: Rows, step: int, classes: int, recipe: Recipe
) -> TupleTransformer:
    assert train.tokens is not None
    net = TupleTransformer(train.features, train.tokens.shape[2], classes, recipe.far)

    def loss(rows: Rows) -> Tensor:
        assert rows.tokens is not None
        longest = int(rows.tokens[:, :, -1].sum(1).max())
        logits = net.logits(rows.tokens[:, :longest], rows.features)
        aim = aims(rows.mib, step, classes, recipe.blur)
        return F.cross_entropy(logits, aim, label_smoothing=recipe.smoothing)

    _train(net, loss, train, valid, recipe)
    return net


def _train(
    net: nn.Module, loss: Callable[[Rows], Tensor], train: Rows, valid: Rows, recipe: Recipe
) -> None:
    steps = -(-len(train) // recipe.batch)
    optimizer = torch.optim.AdamW(net.parameters(), lr=recipe.rate, weight_decay=1e-3)
    pace = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, recipe.rate, total_steps=recipe.epochs * steps, pct_start=0.1
    )
    best, kept = float("inf"), copy.deepcopy(net.state_dict())
    for _ in range(recipe.epochs):
        net.train()
        for index in _order(train, recipe.batch, recipe.bucket):
            optimizer.zero_grad()
            loss(train.take(index)).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            pace.step()
        net.eval()
        with torch.no_grad():
            now = float(loss(valid))
        if now < best:
            best, kept = now, copy.deepcopy(net.state_dict())
    net.load_state_dict(kept)
    net.eval()


def _order(rows: Rows, batch: int, bucket: int) -> list[Tensor]:
    """Batches of a shuffled epoch; those of tokens hold models of about one length, which spares
    most of the padding."""
    index = torch.randperm(len(rows))
    if rows.tokens is None:
        return list(index.split(batch))
    length = rows.tokens[:, :, -1].sum(1)
    found = []
    for part in index.split(bucket * batch):
        found += list(part[length[part].argsort()].split(batch))
    return [found[int(i)] for i in torch.randperm(len(found))]


def answers(net: nn.Module, rows: Rows) -> Tensor:
    """The most likely class of each row."""
    out = []
    with torch.no_grad():
        for index in torch.arange(len(rows)).split(256):
            part = rows.take(index)
            inputs = (part.features,) if part.tokens is None else (part.tokens, part.features)
            out.append(net(*inputs).argmax(-1))
    return torch.cat(out)
