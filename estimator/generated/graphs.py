# SPDX-License-Identifier: Apache-2.0
"""Random graph networks over dense neighbourhoods, whose matrix is an input that no row shows."""

from random import Random

import torch
from torch import Tensor, nn

from estimator.gpumemnet.models.drawn import Drawn


class Convolution(nn.Module):
    """Kipf and Welling (2017): neighbours' sums through one matrix."""

    def __init__(self, read: int, made: int) -> None:
        super().__init__()
        self.lin = nn.Linear(read, made)

    def forward(self, x: Tensor, near: Tensor) -> Tensor:
        return near @ self.lin(x)


class Attention(nn.Module):
    """Velickovic et al. (2018): a weight for each pair of neighbours."""

    def __init__(self, read: int, made: int) -> None:
        super().__init__()
        self.lin, self.left = nn.Linear(read, made), nn.Linear(made, 1)
        self.right, self.act = nn.Linear(made, 1), nn.LeakyReLU(0.2)

    def forward(self, x: Tensor, near: Tensor) -> Tensor:
        seen = self.lin(x)
        scores = self.act(self.left(seen) + self.right(seen).transpose(1, 2))
        return torch.softmax(scores.masked_fill(near < 0.5, -1e9), -1) @ seen


class Graph(nn.Module):
    """Layers with what follows each, and a class for each node."""

    def __init__(self, layers: list[nn.Module], width: int, classes: int, normed: bool) -> None:
        super().__init__()
        self.layers, self.act = nn.ModuleList(layers), nn.ReLU()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in layers if normed)
        self.drop, self.head = nn.Dropout(0.3), nn.Linear(width, classes)

    def forward(self, x: Tensor, near: Tensor) -> Tensor:
        for number, layer in enumerate(self.layers):
            x = layer(x, near)
            if len(self.norms):
                x = self.norms[number](x)
            x = self.drop(self.act(x))
        return self.head(x)


def _node_loss(output: Tensor, batch: int) -> Tensor:
    aim = torch.zeros(output.shape[0] * output.shape[1], dtype=torch.long)
    return nn.functional.cross_entropy(output.reshape(-1, output.shape[-1]), aim)


def draw(random: Random) -> Drawn:
    """One graph network."""
    nodes, read = random.choice((32, 64, 128, 256, 512)), random.choice((16, 64, 300, 1433))
    width, layers = random.choice((32, 64, 128, 256)), random.randint(2, 8)
    kind, normed = random.choice((Convolution, Attention)), random.random() < 0.5
    classes = random.choice((2, 7, 40))

    def make() -> nn.Module:
        rows = [kind(read if number == 0 else width, width) for number in range(layers)]
        return Graph(list(rows), width, classes, normed)

    def inputs(batch: int) -> tuple[Tensor, ...]:
        return torch.randn(batch, nodes, read), torch.ones(batch, nodes, nodes)

    return Drawn("graph", make, inputs, _node_loss, {"kind": kind.__name__})
