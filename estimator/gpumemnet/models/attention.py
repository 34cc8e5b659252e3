# SPDX-License-Identifier: Apache-2.0
"""Self-attention as models write it themselves, and the scale that follows it in some."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class SelfAttention(nn.Module):
    """Three projections or one; scores stored (``eager``) or not."""

    def __init__(self, width: int, heads: int, rate: float, eager: bool, joined: bool) -> None:
        super().__init__()
        self.heads, self.rate, self.eager = heads, rate, eager
        parts = [nn.Linear(width, 3 * width)] if joined else [
            nn.Linear(width, width) for _ in range(3)
        ]  # fmt: skip
        self.read = nn.ModuleList(parts)
        self.drop = nn.Dropout(rate) if rate else nn.Identity()
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        rows, tokens, width = x.shape
        given = torch.cat([part(x) for part in self.read], -1).chunk(3, -1) if len(
            self.read
        ) == 1 else [part(x) for part in self.read]  # fmt: skip
        query, key, value = (
            part.view(rows, tokens, self.heads, width // self.heads).transpose(1, 2)
            for part in given
        )
        if self.eager:
            scores = torch.softmax(query @ key.transpose(2, 3) / 8.0, -1)
            made = self.drop(scores) @ value
        else:
            rate = self.rate if self.training else 0.0
            made = F.scaled_dot_product_attention(query, key, value, dropout_p=rate)
        return self.out(made.transpose(1, 2).reshape(rows, tokens, width))


class LayerScale(nn.Module):
    """A factor a channel (Touvron et al. 2021)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gamma
