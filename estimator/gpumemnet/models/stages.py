# SPDX-License-Identifier: Apache-2.0
"""Random image Transformers in four stages: fewer and wider tokens from one to the next.

Attention as the published ones have it: inside windows (Liu et al. 2021), with keys and values of
fewer tokens (Wang et al. 2021), or over all tokens; the first stages may be inverted residual
blocks (Dai et al. 2021).
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from torch import Tensor, nn
from torch.nn import functional as F

from estimator.gpumemnet.models.attention import LayerScale, SelfAttention
from estimator.gpumemnet.models.blocks import Add, mobile

Attention = Callable[[int, int], nn.Module]  # width, stage


class Windows(nn.Module):
    """Attention inside squares of ``side`` tokens; (rows, high, wide, width)."""

    def __init__(self, attention: SelfAttention, side: int) -> None:
        super().__init__()
        self.attention, self.side = attention, side

    def forward(self, x: Tensor) -> Tensor:
        rows, high, wide, width = x.shape
        side = self.side if high % self.side == 0 and wide % self.side == 0 else min(high, wide)
        x = x.view(rows, high // side, side, wide // side, side, width)
        x = x.permute(0, 1, 3, 2, 4, 5).reshape(-1, side * side, width)
        x = self.attention(x).view(rows, high // side, wide // side, side, side, width)
        return x.permute(0, 1, 3, 2, 4, 5).reshape(rows, high, wide, width)


class Reduced(nn.Module):
    """All tokens ask, ``ratio`` squared times fewer answer."""

    def __init__(self, width: int, heads: int, ratio: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.rest = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.fewer = nn.Conv2d(width, width, ratio, ratio) if ratio > 1 else None
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, width)

    def _split(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], -1, self.heads, x.shape[-1] // self.heads).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        rows, high, wide, width = x.shape
        query, seen = self._split(self.query(x)), x
        if self.fewer is not None:
            seen = self.norm(self.fewer(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1))
        key, value = self.rest(seen).chunk(2, -1)
        made = F.scaled_dot_product_attention(query, self._split(key), self._split(value))
        return self.out(made.transpose(1, 2).reshape(rows, high, wide, width))


class Block(nn.Module):
    """Normalised first or, as Swin 2, after."""

    def __init__(self, width: int, attention: nn.Module, grow: int, scaled: bool, first: bool):
        super().__init__()
        self.first, self.attention = first, attention
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.fc1, self.act = nn.Linear(width, grow * width), nn.GELU()
        self.fc2 = nn.Linear(grow * width, width)
        self.scale1 = LayerScale(width) if scaled else nn.Identity()
        self.scale2 = LayerScale(width) if scaled else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        if self.first:
            x = x + self.scale1(self.attention(self.norm1(x)))
            return x + self.scale2(self.fc2(self.act(self.fc1(self.norm2(x)))))
        x = x + self.norm1(self.attention(x))
        return x + self.norm2(self.fc2(self.act(self.fc1(x))))


class Last(nn.Module):
    """Channels go last, or first, for what stands inside."""

    def __init__(self, inside: nn.Module, first: bool = False) -> None:
        super().__init__()
        self.inside, self.first = inside, first

    def forward(self, x: Tensor) -> Tensor:
        if self.first:
            return self.inside(x.permute(0, 3, 1, 2))
        return self.inside(x.permute(0, 2, 3, 1))


class Mean(nn.Module):
    """Mean of all tokens."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((1, 2))


@dataclass(frozen=True)
class Plan:
    """What was drawn."""

    kind: str
    width: int
    depths: tuple[int, ...]
    head: int
    side: int
    grow: int
    eager: bool
    scaled: bool
    first: bool
    blocks: int  # of the first stages, which are convolutions
    size: int


def plan(random: Random) -> Plan:
    side, size = random.choice(((7, 224), (7, 224), (8, 256), (12, 384), (14, 224)))
    deep = random.choice((2, 4, 6, 6, 12, 18))
    return Plan(
        kind=random.choice(("windows", "windows", "reduced", "all")),
        width=random.choice((32, 48, 64, 64, 96, 96, 128)),
        depths=(random.randint(1, 3), random.randint(1, 4), deep, random.randint(1, 3)),
        head=random.choice((16, 32, 32)),
        side=side,
        grow=random.choice((3, 4, 4, 8)),
        eager=random.random() < 0.25,
        scaled=random.random() < 0.3,
        first=random.random() < 0.8,
        blocks=random.choice((0, 0, 1, 2)),
        size=size,
    )


def _attention(plan: Plan, width: int, stage: int) -> nn.Module:
    heads = max(1, width // plan.head)
    if plan.kind == "reduced":
        return Reduced(width, heads, 8 >> stage)
    attention = SelfAttention(width, heads, 0.0, plan.eager, True)
    # Over all tokens only where they are few.
    return Windows(attention, plan.side if plan.kind == "windows" or stage < 2 else 1 << 20)


def make(plan: Plan, classes: int) -> nn.Module:
    """Of images (rows, 3, size, size)."""
    body: list[nn.Module] = []
    read = 3
    for stage, depth in enumerate(plan.depths):
        width, step = plan.width << stage, 2 if stage else 4
        body.append(nn.Conv2d(read, width, step, step))
        if stage < plan.blocks:
            for _ in range(depth):
                body.append(Add(mobile(width, plan.grow), nn.Identity(), nn.Identity()))
        else:
            blocks = [
                Block(width, _attention(plan, width, stage), plan.grow, plan.scaled, plan.first)
                for _ in range(depth)
            ]
            inside = nn.Sequential(nn.LayerNorm(width), *blocks)
            last = stage == len(plan.depths) - 1
            body.append(Last(inside))
            if not last:
                body.append(Last(nn.Identity(), first=True))
        read = width
    return nn.Sequential(*body, nn.LayerNorm(read), Mean(), nn.Linear(read, classes))
