# SPDX-License-Identifier: Apache-2.0
"""Random graphs of operators: what reads what is in no text. An answer may not pretend to know."""

from random import Random

import torch
from torch import Tensor, nn

from estimator.gpumemnet.models.drawn import ACTIVATIONS, Drawn, cross_entropy

#: what joins two tensors of one shape
JOINS = ("sum", "gate", "product", "concat")


class Wired(nn.Module):
    """Nodes in order, each of one or two that were before it."""

    def __init__(self, width: int, nodes: list[tuple[str, int, int, nn.Module]], head: int) -> None:
        super().__init__()
        self.stem, self.flat = nn.Conv2d(3, width, 3, 2, 1), nn.Flatten()
        self.nodes = nn.ModuleList(node for *_, node in nodes)
        self.wires = [(how, left, right) for how, left, right, _ in nodes]
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(width, head)

    def forward(self, x: Tensor) -> Tensor:
        seen = [self.stem(x)]
        for node, (how, left, right) in zip(self.nodes, self.wires, strict=True):
            one, two = seen[left], seen[right]
            if how == "sum":
                one = one + two
            elif how == "gate":
                one = one * torch.sigmoid(two)
            elif how == "product":
                one = one * two
            elif how == "concat":
                one = torch.cat((one, two), 1)
            seen.append(node(one))
        return self.head(self.flat(self.pool(seen[-1])))


def draw(random: Random) -> Drawn:
    """One graph of convolutions, norms, activations and joins, all of one width."""
    width, size = random.choice((16, 32, 64, 128)), random.choice((32, 64, 128))
    count, head = random.randint(6, 40), random.choice((10, 1000))
    acts = [name for name in ACTIVATIONS if name != "identity"]
    plan: list[tuple[str, int, int, str]] = []
    for number in range(count):
        how = random.choice((*JOINS, *["one"] * 8))
        what = random.choice(("conv", "conv", "norm", "act", "depthwise", "pool", "drop"))
        what = "squeeze" if how == "concat" else what
        left = number if random.random() < 0.7 else random.randint(0, number)
        plan.append((how, left, random.randint(0, number), f"{what}:{random.choice(acts)}"))

    def node(what: str) -> nn.Module:
        kind, _, act = what.partition(":")
        return {
            "conv": lambda: nn.Conv2d(width, width, 3, padding=1),
            "squeeze": lambda: nn.Conv2d(2 * width, width, 1),
            "norm": lambda: nn.BatchNorm2d(width),
            "act": lambda: ACTIVATIONS[act](),
            "depthwise": lambda: nn.Conv2d(width, width, 5, padding=2, groups=width),
            "pool": lambda: nn.AvgPool2d(3, 1, 1),
            "drop": lambda: nn.Dropout(0.1),
        }[kind]()

    return Drawn(
        "wired",
        lambda: Wired(
            width, [(how, left, right, node(what)) for how, left, right, what in plan], head
        ),
        lambda batch: (torch.randn(batch, 3, size, size),),
        cross_entropy,
        {"kind": "wired"},
    )
