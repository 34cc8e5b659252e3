# SPDX-License-Identifier: Apache-2.0
"""The thesis' two networks: an ensemble of 13 MLPs, and a Transformer over layer tuples.

Both answer with one logit a memory class. Sizes are those that the thesis' repository names where
it names them (hidden layers 1 to 7 and 1 to 6, widths halved down to 16); the Transformer is
wider than the thesis' (32 against 6), has two layers, and pools by mean and maximum. Its blocks are
written out so that an exported graph has nothing but elementary operators.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

#: hidden layers of the 13 members
MEMBERS: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4, 5, 6)
WIDEST, NARROWEST = 128, 16


class Scale(nn.Module):
    """Standardises features with the means and deviations of the training rows. What lies far
    outside them, over ``far`` deviations, or never changed there, may not shout down the rest."""

    def __init__(self, rows: Tensor, far: float) -> None:
        super().__init__()
        self.far = far
        self.register_buffer("mean", rows.mean(0))
        self.register_buffer("deviation", rows.std(0).clamp_min(0.1))

    def forward(self, x: Tensor) -> Tensor:
        return ((x - self.mean) / self.deviation).clamp(-self.far, self.far)


def member(inputs: int, hidden: int, classes: int) -> nn.Sequential:
    """One MLP: ``hidden`` layers whose widths halve down to NARROWEST."""
    layers: list[nn.Module] = []
    width = WIDEST >> max(0, 3 - hidden)
    for _ in range(hidden):
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        inputs, width = width, max(NARROWEST, width // 2)
    return nn.Sequential(*layers, nn.Linear(inputs, classes))


class Ensemble(nn.Module):
    """13 MLPs on the engineered features. ``forward`` gives the mean of their probabilities;
    ``members_logits`` one tensor (rows, classes) each, for the loss."""

    def __init__(
        self, rows: Tensor, classes: int, far: float = 1e9, members: Sequence[int] = MEMBERS
    ) -> None:
        super().__init__()
        self.scale = Scale(rows, far)
        self.members = nn.ModuleList(member(rows.shape[1], n, classes) for n in members)

    def members_logits(self, x: Tensor) -> list[Tensor]:
        scaled = self.scale(x)
        return [one(scaled) for one in self.members]

    def forward(self, features: Tensor) -> Tensor:
        parts = [torch.softmax(logits, -1) for logits in self.members_logits(features)]
        return torch.stack(parts).mean(0)


class Block(nn.Module):
    """Self-attention and a feed-forward layer, normalised first. ``hide``: (rows, 1, 1, tokens),
    a large negative number where there is padding."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.each = heads, width // heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(
            nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)
        )

    def _split(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], -1, self.heads, self.each).transpose(1, 2)

    def forward(self, x: Tensor, hide: Tensor) -> Tensor:
        query, key, value = (self._split(part) for part in self.qkv(self.before(x)).chunk(3, -1))
        scores = query @ key.transpose(2, 3) / self.each**0.5 + hide
        seen = (torch.softmax(scores, -1) @ value).transpose(1, 2)
        x = x + self.out(seen.reshape(x.shape[0], -1, self.heads * self.each))
        return x + self.feed(self.between(x))


class TupleTransformer(nn.Module):
    """Over tuples (layer type as one-hot, log activations, log parameters), with the global
    features beside the pooled tokens.

    ``tokens``: (rows, length, tuple width), all zero where padded: the last column of a real tuple
    is 1. ``features``: (rows, features).
    """

    def __init__(
        self,
        rows: Tensor,
        tuple_width: int,
        classes: int,
        far: float = 1e9,
        width: int = 32,
        depth: int = 2,
    ) -> None:
        super().__init__()
        self.scale = Scale(rows, far)
        self.enter = nn.Linear(tuple_width, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(depth))
        self.leave = nn.Sequential(
            nn.Linear(2 * width + rows.shape[1], 2 * width),
            nn.ReLU(),
            nn.Linear(2 * width, width),
            nn.ReLU(),
            nn.Linear(width, classes),
        )

    def logits(self, tokens: Tensor, features: Tensor) -> Tensor:
        real = tokens[:, :, -1:]
        hide = (real.transpose(1, 2).unsqueeze(1) - 1.0) * 1e4
        x = self.enter(tokens)
        for block in self.blocks:
            x = block(x, hide)
        mean = (x * real).sum(1) / real.sum(1).clamp_min(1.0)
        most = (x + (real - 1.0) * 1e4).amax(1)
        return self.leave(torch.cat((mean, most, self.scale(features)), -1))

    def forward(self, tokens: Tensor, features: Tensor) -> Tensor:
        return torch.softmax(self.logits(tokens, features), -1)


class Merged(nn.Module):
    """The same answers from tokens that are all different, and how often each stands there: nothing
    in the network knows a token's place, so equal ones stay equal. ``counts``: (rows, length)."""

    def __init__(self, net: TupleTransformer) -> None:
        super().__init__()
        self.net = net

    def forward(self, tokens: Tensor, counts: Tensor, features: Tensor) -> Tensor:
        often = counts.log().unsqueeze(1).unsqueeze(1)
        x = self.net.enter(tokens)
        for block in self.net.blocks:
            x = block(x, often)
        share = (counts / counts.sum(1, keepdim=True)).unsqueeze(-1)
        pooled = torch.cat(((x * share).sum(1), x.amax(1), self.net.scale(features)), -1)
        return torch.softmax(self.net.leave(pooled), -1)
