# SPDX-License-Identifier: Apache-2.0
"""Random recurrent models: of words, of sound, of time series."""

from random import Random
from typing import Any

import torch
from torch import Tensor, nn

from estimator.gpumemnet.models.drawn import Drawn, cross_entropy

CELLS: dict[str, Any] = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN": nn.RNN}


class Words(nn.Module):
    """Embedding, recurrent layers, and a head over the words or over classes of the last state."""

    def __init__(self, words: int, width: int, body: nn.Module, made: int, head: int) -> None:
        super().__init__()
        self.embedding, self.drop, self.body = nn.Embedding(words, width), nn.Dropout(0.2), body
        self.head, self.every = nn.Linear(made, head or words), not head

    def forward(self, x: Tensor) -> Tensor:
        found = self.body(self.drop(self.embedding(x)))[0]
        return self.head(self.drop(found if self.every else found[:, -1]))


class Series(nn.Module):
    """Convolutions over time, recurrent layers, and a head over the last state."""

    def __init__(self, channels: int, width: int, body: nn.Module, made: int, head: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv1d(channels, width, 5, 2, 2), nn.BatchNorm1d(width)
        self.act, self.body, self.head = nn.ReLU(), body, nn.Linear(made, head)

    def forward(self, x: Tensor) -> Tensor:
        seen = self.act(self.norm(self.conv(x))).transpose(1, 2)
        return self.head(self.body(seen)[0][:, -1])


def _word_loss(output: Tensor, batch: int) -> Tensor:
    if output.dim() == 2:
        return cross_entropy(output, batch)
    aim = torch.zeros(output.shape[0] * output.shape[1], dtype=torch.long)
    return nn.functional.cross_entropy(output.reshape(-1, output.shape[-1]), aim)


def draw(random: Random) -> Drawn:
    """One recurrent model."""
    cell, layers = random.choice(list(CELLS)), random.randint(1, 3)
    width, inner = random.choice((64, 128, 256, 512)), random.choice((128, 256, 512, 1024))
    both, drops = random.random() < 0.4, random.random() < 0.5
    words = random.choice((2_000, 10_000, 32_000, 50_000))
    length, channels = random.choice((32, 64, 128, 256)), random.choice((1, 12, 40, 80))
    head = random.choice((2, 10, 100))
    kind = random.choice(("language", "class", "series"))

    def make() -> nn.Module:
        body = CELLS[cell](
            width, inner, layers, batch_first=True, bidirectional=both,
            dropout=0.2 if drops and layers > 1 else 0.0,
        )  # fmt: skip
        made = inner * (2 if both else 1)
        if kind == "series":
            return Series(channels, width, body, made, head)
        return Words(words, width, body, made, head if kind == "class" else 0)

    def inputs(batch: int) -> tuple[Tensor, ...]:
        if kind == "series":
            return (torch.randn(batch, channels, 2 * length),)
        return (torch.zeros(batch, length, dtype=torch.long),)

    return Drawn("recurrent", make, inputs, _word_loss, {"kind": f"{cell} {kind}"})
