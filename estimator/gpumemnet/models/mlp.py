# SPDX-License-Identifier: Apache-2.0
"""Random MLPs: the thesis' four shapes in its ranges, and as many beyond them.

The thesis' ranges (its repository, NeuroNetGen_scripts/MLP/parameters.yaml): inputs 4 to 4096,
outputs up to a quarter of them, 1 to 10 hidden layers. Beyond: inputs to
16384, so that what people train is not all outside. Batch sizes: see rows.py.
"""

from random import Random

import torch
from torch import nn

from estimator.gpumemnet.models.drawn import ACTIVATIONS, Drawn, cross_entropy

SHAPES = ("pyramid", "uniform", "bottleneck", "gradual")


def widths(shape: str, inputs: int, outputs: int, depth: int) -> list[int]:
    """Units of the hidden layers."""
    if shape == "uniform":
        return [inputs] * depth
    if shape == "gradual":
        fall = (inputs - outputs) // depth
        return [max(inputs - fall * (i + 1), outputs) for i in range(depth)]
    found, width = [], inputs
    for _ in range(depth + (shape == "bottleneck")):
        width = max(width // 2, outputs)
        found.append(width)
    return found


def draw(random: Random) -> Drawn:
    """One MLP, its last layer a Softmax as in the thesis."""
    beyond = random.random() < 0.5
    inputs = random.randint(4, 16384 if beyond else 4096)
    outputs = random.randint(1, max(2, inputs // 4))
    depth = random.randint(1, 10)
    shape, activation = random.choice(SHAPES), random.choice(list(ACTIVATIONS))
    norm, drop = random.random() < 0.5, random.random() < 0.5
    rate = random.uniform(0.1, 0.5)

    def make() -> nn.Module:
        layers: list[nn.Module] = []
        width = inputs
        for units in widths(shape, inputs, outputs, depth):
            layers.append(nn.Linear(width, units))
            if norm:
                layers.append(nn.BatchNorm1d(units))
            layers.append(ACTIVATIONS[activation]())
            if drop:
                layers.append(nn.Dropout(rate))
            width = units
        return nn.Sequential(*layers, nn.Linear(width, outputs), nn.Softmax(dim=1))

    return Drawn(
        family="mlp",
        make=make,
        inputs=lambda batch: (torch.randn(batch, inputs),),
        loss=cross_entropy,
        words={"shape": shape, "inputs": inputs, "depth": depth, "activation": activation},
    )
