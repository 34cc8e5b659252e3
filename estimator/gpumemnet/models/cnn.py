# SPDX-License-Identifier: Apache-2.0
"""Random CNNs in the thesis' seven shapes, and blocks that real ones are made of.

The thesis' ranges (its repository, NeuroNetGen_scripts/CNN): 32 to 512 first filters, at most 2048,
depth 1 to 29, images of 32 to 224, 100 to 1000 classes, ten activation
functions, with and without BatchNorm and Dropout. Its CNNs are hardly pooled and have one kernel;
ours pool as often as not, and one in two is made of the blocks of real models (basic, bottleneck,
inverted residual with squeeze-excitation, large depthwise kernels), for real ones are judged.
"""

from random import Random

import torch
from torch import Tensor, nn

from estimator.gpumemnet.models.blocks import BLOCKS
from estimator.gpumemnet.models.drawn import ACTIVATIONS, Drawn, cross_entropy

SHAPES = ("pyramid", "uniform", "bottleneck", "gradual", "hourglass", "residual", "dense")
MOST = 2048  # filters


def filters(shape: str, base: int, depth: int) -> list[int]:
    """Filters of each layer; they grow towards MOST at the shape's pace."""
    ratio = MOST / base
    if shape == "uniform":
        return [base] * depth
    if shape == "gradual":
        return [int(base * ratio ** (i / (2 * depth))) for i in range(depth)]
    if shape == "bottleneck":
        pace = ratio ** (1 / max(1, depth - 1))
        return [2 * base, *(int(base * pace**i) for i in range(depth - 1))]
    if shape == "hourglass":
        up = depth // 2
        rise = [int(base * ratio ** (i / max(1, up))) for i in range(up)]
        fall = [int(base * ratio ** (i / (depth - up))) for i in range(depth - up)]
        return rise + fall[::-1]
    return [int(base * ratio ** (i / depth)) for i in range(depth)]


class Residual(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, one: nn.Module, two: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.one, self.two, self.shortcut = one, two, shortcut

    def forward(self, x: Tensor) -> Tensor:
        return self.two(self.one(x)) + self.shortcut(x)


class Dense(nn.Module):
    """Each layer reads the outputs of all before it."""

    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        seen = [x]
        for layer in self.layers:
            seen.append(layer(torch.cat(seen, 1)))
        return torch.cat(seen, 1)


class Layers:
    """Makes convolution, norm, activation, dropout in one manner."""

    def __init__(self, random: Random) -> None:
        self.activation = random.choice([name for name in ACTIVATIONS if name != "identity"])
        self.norm, self.drop = random.random() < 0.6, random.random() < 0.4
        self.rate = random.uniform(0.1, 0.5)

    def conv(self, read: int, made: int, kernel: int = 3, stride: int = 1) -> nn.Module:
        parts: list[nn.Module] = [nn.Conv2d(read, made, kernel, stride, kernel // 2)]
        if self.norm:
            parts.append(nn.BatchNorm2d(made))
        parts.append(ACTIVATIONS[self.activation]())
        if self.drop:
            parts.append(nn.Dropout(self.rate))
        return nn.Sequential(*parts)


def _plain(layers: Layers, shape: str, base: int, depth: int, every: int) -> list[nn.Module]:
    """``every``: layers between two poolings."""
    body: list[nn.Module] = []
    read = 3
    if shape == "dense":
        growth = max(8, base // 8)
        for i in range(max(1, depth // 4)):
            body.append(Dense([layers.conv(read + k * growth, growth) for k in range(4)]))
            read += 4 * growth
            body.append(layers.conv(read, read // 2, 1))
            read //= 2
            if i < 4:
                body.append(nn.AvgPool2d(2))
        return body
    for i, made in enumerate(filters(shape, base, depth)):
        if shape == "residual":
            if i % 2:
                continue
            stride = 2 if i % 4 == 2 and i < 16 else 1
            shortcut = nn.Conv2d(read, made, 1, stride)
            one = layers.conv(read, made, 3, stride)
            body.append(Residual(one, layers.conv(made, made), shortcut))
        else:
            body.append(layers.conv(read, made))
            if i and i % every == 0 and i // every <= 4:
                body.append(nn.MaxPool2d(2))
        read = made
    return body


class Net(nn.Module):
    """Convolutions, global pooling, one linear layer."""

    def __init__(self, body: list[nn.Module], classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(*body)
        # The last layer that says how many channels it makes is the last one that makes any.
        made = [
            getattr(layer, "out_channels", 0) or getattr(layer, "out_features", 0)
            for layer in self.body.modules()
        ]
        self.pool, self.flatten = nn.AdaptiveAvgPool2d(1), nn.Flatten()
        self.fc = nn.Linear([count for count in made if count][-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.flatten(self.pool(self.body(x))))


def draw(random: Random) -> Drawn:
    """One CNN."""
    classes = random.randint(100, 1000)
    layers = Layers(random)
    seed = random.getrandbits(32)
    if random.random() < 0.5:
        kind = random.choice(list(BLOCKS))
        size = random.choice((128, 160, 192, 224, 224, 224, 256, 288, 320, 384))
        words = {"blocks": kind}
    else:
        kind = random.choice(SHAPES)
        size = 2 * random.randint(16, 112)
        words = {"shape": kind}
    base = random.randint(32, 256)
    depth, every = random.randint(1, 29), random.choice((1, 2, 3, 5))

    def make() -> nn.Module:
        if kind in BLOCKS:
            return Net(BLOCKS[kind](Random(seed)), classes)
        return Net(_plain(layers, kind, base, depth, every), classes)

    return Drawn(
        family="cnn",
        make=make,
        inputs=lambda batch: (torch.randn(batch, 3, size, size),),
        loss=cross_entropy,
        words={**words, "size": size, "depth": depth},
    )
