# SPDX-License-Identifier: Apache-2.0
"""What is to be recorded: a model, its batches and its loss, from what a user names.

The protocol of an object that a user's callable may give: ``model`` (a torch.nn.Module) and
``inputs(batch_size)`` (a tensor, a tuple of positional or a dictionary of keyword arguments);
optional are ``loss(output)`` (a scalar tensor, else guessed, see losses), ``optimizer`` (a
torch.optim.Optimizer or a name of `coloc estimate`) and ``batch_size`` (int).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from slurm_coloc.summarize.losses import Loss, guessed

Inputs = Callable[[int], Any]


@dataclass(frozen=True, slots=True)
class Wish:
    """Options of the command line; None where the user said nothing. ``shape``: of one sample."""

    batch_size: int | None = None
    shape: tuple[int, ...] | None = None
    seq_len: int | None = None
    optimizer: str | None = None
    precision: str = "fp32"

    @classmethod
    def of(cls, request: Mapping[str, Any]) -> Wish:
        """From the request that `coloc summarize` writes for the worker."""
        shape = request.get("shape")
        return cls(
            batch_size=request.get("batch_size"),
            shape=tuple(shape) if shape else None,
            seq_len=request.get("seq_len"),
            optimizer=request.get("optimizer"),
            precision=request.get("precision") or "fp32",
        )


@dataclass(frozen=True, slots=True)
class Job:
    """See the module. ``inputs`` makes a batch of so many samples: positional arguments as a tuple
    or keywords as a dictionary. ``batch_size``, ``seq_len``: 0 where they are not known."""

    model: torch.nn.Module
    inputs: Inputs
    loss: Loss = guessed
    optimizer: str = ""
    batch_size: int = 0
    seq_len: int = 0


def arguments(given: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of a batch."""
    if isinstance(given, Mapping):
        return (), dict(given)
    return (tuple(given) if isinstance(given, (tuple, list)) else (given,)), {}
