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

from slurm_coloc.errors import UsageFault
from slurm_coloc.summarize.losses import Loss, guessed
from slurm_coloc.summarize.resize import leading, resized

Inputs = Callable[[int], Any]


@dataclass(frozen=True, slots=True)
class Wish:
    """Options of the command line; None where the user said nothing. ``shape``: of one sample."""

    batch_size: int | None = None
    shape: tuple[int, ...] | None = None
    seq_len: int | None = None
    optimizer: str | None = None
    precision: str = "fp32"


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


def job_of(made: Any, wish: Wish, what: str) -> Job:
    """The job of what a user's callable gave. Raises UsageFault that says what it should give."""
    if isinstance(made, torch.nn.Module):
        return _of_module(made, wish, what)
    if isinstance(made, (tuple, list)) and len(made) == 2 and isinstance(made[0], torch.nn.Module):
        return _of_example(made[0], made[1], wish)
    model, inputs = getattr(made, "model", None), getattr(made, "inputs", None)
    if isinstance(model, torch.nn.Module) and callable(inputs):
        return Job(
            model,
            inputs,
            getattr(made, "loss", None) or guessed,
            optimizer_name(getattr(made, "optimizer", "")),
            int(getattr(made, "batch_size", 0) or 0),
            int(getattr(made, "seq_len", 0) or 0),
        )
    raise UsageFault(
        f"{what} gave a {type(made).__name__}: it must give a torch.nn.Module, (module, example"
        " inputs), or an object with model and inputs(batch_size)",
        "bad_target",
    )


def optimizer_name(found: Any) -> str:
    """Of an optimizer or a name; empty where there is none."""
    if isinstance(found, str) or found is None:
        return found or ""
    from slurm_coloc.summarize.optimizers import name_of

    return name_of(found)[0]


def _of_module(model: torch.nn.Module, wish: Wish, what: str) -> Job:
    from slurm_coloc.summarize import sources

    known = sources.of_module(model, wish)
    if known is not None:
        return known
    if wish.shape:
        shape = wish.shape
        return Job(model, lambda batch: (torch.randn(batch, *shape),))
    if wish.seq_len:
        tokens = wish.seq_len
        return Job(
            model, lambda batch: (torch.zeros(batch, tokens, dtype=torch.long),), seq_len=tokens
        )
    raise UsageFault(
        f"{what} gave a {type(model).__name__} and nothing says what it reads: give --input"
        " 3x224x224 or --seq-len 512, or let it give (module, example inputs)",
        "no_inputs",
    )


def _of_example(model: torch.nn.Module, example: Any, wish: Wish) -> Job:
    batch = leading(example)
    if batch is None:
        raise UsageFault("the example inputs hold no tensor with a batch dimension", "no_inputs")
    return Job(model, lambda size: resized(example, batch, size), batch_size=batch)
