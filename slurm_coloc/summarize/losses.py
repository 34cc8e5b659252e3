# SPDX-License-Identifier: Apache-2.0
"""A loss for a model whose own is not known, by the shape of what the model gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

Loss = Callable[[Any], torch.Tensor]


def guessed(output: Any) -> torch.Tensor:
    """A scalar: the output's own ``loss``; cross entropy over classes (batch, classes, ...) or over
    tokens (batch, tokens, words); else the sum of the means of all that it gives."""
    own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(own, torch.Tensor):
        return own if own.dim() == 0 else own.mean()
    parts = [x for x in _tensors(output) if x.is_floating_point() and x.requires_grad]
    if not parts:
        raise ValueError("the model gives nothing that a loss could be computed from")
    total = _loss(parts[0])
    for part in parts[1:]:
        total = total + (_loss(part) if part.dim() == 2 else part.mean())
    return total


def _tensors(output: Any) -> list[torch.Tensor]:
    if isinstance(output, Mapping):
        output = list(output.values())
    return [x for x in tree_leaves(output) if isinstance(x, torch.Tensor)]


def _loss(x: torch.Tensor) -> torch.Tensor:
    if x.dim() == 0:
        return x
    if x.dim() == 3:  # words last
        x = x.reshape(-1, x.shape[-1])
    if x.dim() < 2 or x.shape[1] < 2:
        return F.binary_cross_entropy_with_logits(x, torch.zeros_like(x))
    classes = torch.zeros((x.shape[0], *x.shape[2:]), dtype=torch.long, device=x.device)
    return F.cross_entropy(x, classes)
