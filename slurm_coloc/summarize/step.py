# SPDX-License-Identifier: Apache-2.0
"""One training step of a module, recorded: forward, loss, backward."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, nullcontext
from itertools import product
from typing import Any
from unittest import mock

import torch
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from slurm_coloc.estimate.replay.recording import Recording
from slurm_coloc.summarize.cuda.asgpu import AsGpu
from slurm_coloc.summarize.cuda.autocast import amp
from slurm_coloc.summarize.losses import Loss
from slurm_coloc.summarize.recorder import Recorder
from slurm_coloc.summarize.rows import Rows


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().nbytes()


def tensors(*given: Any) -> list[torch.Tensor]:
    """All tensors in nested lists, tuples and dictionaries."""
    return [x for x in tree_leaves(given) if isinstance(x, torch.Tensor)]


#: by which PyTorch's functions ask whether they are to be handed to a mode
_OVERRIDES = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


def _no_mode(*tensors: Any) -> bool:
    return False


class Session:
    """Records what runs between its enter and its exit.

    ``models``: what trains; ``given``: the tensors of a batch. Both were there before. Garbage is
    not collected meanwhile: when it would be is chance.
    """

    def __init__(self, models: Sequence[torch.nn.Module], given: Sequence[torch.Tensor]) -> None:
        self._models, self._given = models, given
        self._recorder = Recorder()
        self._stack = ExitStack()
        self._collects = gc.isenabled()

    def __enter__(self) -> Session:
        gc.disable()
        self._stack.enter_context(self._recorder)
        # torch.nn.functional would hand its own functions to the modes and run what is in them
        # without: nn.MultiheadAttention's dropout and attention would not be seen. torch.autograd
        # would the backward, in which gradient checkpointing runs blocks once more.
        for place, name in product((F, torch.autograd), _OVERRIDES):
            if hasattr(place, name):
                self._stack.enter_context(mock.patch.object(place, name, _no_mode))
        self._stack.enter_context(AsGpu())
        for tensor in (*self._parameters(), *self._buffers(), *self._given):
            self._recorder.forget(tensor)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()
        if self._collects:
            gc.enable()

    def forget(self, given: Iterable[torch.Tensor]) -> None:
        """More tensors that were there before."""
        for tensor in given:
            self._recorder.forget(tensor)

    def _parameters(self) -> list[torch.nn.Parameter]:
        return list({id(p): p for model in self._models for p in model.parameters()}.values())

    def _buffers(self) -> list[torch.Tensor]:
        return list({id(b): b for model in self._models for b in model.buffers()}.values())

    def recording(self) -> Recording:
        """What was recorded until now. Gradients are found on the parameters."""
        parameters = self._parameters()
        trained = [p for p in parameters if p.requires_grad]
        frozen = [p for p in parameters if not p.requires_grad]
        held = [self._recorder.index_of(p.grad) for p in trained if p.grad is not None]
        events, number = self._recorder.taken()
        return Recording(
            parameters=tuple(_bytes(p) for p in trained),
            constants=tuple(_bytes(x) for x in (*frozen, *self._buffers())),
            inputs=tuple(_bytes(x) for x in self._given),
            events=tuple(events),
            gradients=frozenset(number[i] for i in held if i is not None and i >= 0),
        )


def record(
    model: torch.nn.Module,
    inputs: Sequence[Any],
    loss: Loss,
    *,
    keywords: dict[str, Any] | None = None,
    beside: Sequence[torch.Tensor] = (),
    precision: str = "fp32",
    rows: Rows | None = None,
) -> Recording:
    """Of ``model(*inputs, **keywords)`` and the backward of ``loss`` of what it gives.

    All tensors are fake: make them inside the FakeTensorMode that is active here. ``beside``: what
    the loss needs of a batch (labels). ``precision`` amp: under CUDA's autocast; bf16 is for the
    caller, who makes model and inputs so. ``rows``: note the modules that the forward calls.
    """
    keywords = keywords or {}
    for parameter in model.parameters():
        parameter.grad = None
    with Session([model], tensors(inputs, keywords, beside)) as session:
        with amp() if precision == "amp" else nullcontext():
            with rows or nullcontext():
                output = model(*inputs, **keywords)
            value = loss(output)
        value.backward()
        return session.recording()
