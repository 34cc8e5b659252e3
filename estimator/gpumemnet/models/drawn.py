# SPDX-License-Identifier: Apache-2.0
"""A model that was drawn, and how to train it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU, "leaky_relu": nn.LeakyReLU, "prelu": nn.PReLU, "elu": nn.ELU,
    "selu": nn.SELU, "tanh": nn.Tanh, "softplus": nn.Softplus, "swish": nn.SiLU,
    "mish": nn.Mish, "gelu": nn.GELU, "identity": nn.Identity,
}  # fmt: skip


@dataclass(frozen=True)
class Drawn:
    """``make`` builds the module; ``inputs(batch)`` and ``loss(output, batch)`` are called where
    tensors are fake. ``words``: what was drawn, for people."""

    family: str
    make: Callable[[], nn.Module]
    inputs: Callable[[int], tuple[Tensor, ...]]
    loss: Callable[[Any, int], Tensor]
    words: dict[str, Any] = field(default_factory=dict)


def cross_entropy(output: Tensor, batch: int) -> Tensor:
    """Of class scores (batch, classes)."""
    aim = torch.zeros(batch, dtype=torch.long)
    return nn.functional.cross_entropy(output, aim)
