# SPDX-License-Identifier: Apache-2.0
"""One training step of a module, recorded: forward, loss, backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from slurm_coloc.estimate.replay.recording import Recording
from slurm_coloc.summarize.asgpu import AsGpu
from slurm_coloc.summarize.recorder import Recorder

Loss = Callable[[Any], torch.Tensor]


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().nbytes()


def record(model: torch.nn.Module, inputs: Sequence[Any], loss: Loss) -> Recording:
    """Of ``model(*inputs)`` and the backward of ``loss`` of what it gives. All tensors are fake:
    make them inside the FakeTensorMode that is active here."""
    parameters = list(model.parameters())
    constants = [p for p in parameters if not p.requires_grad] + list(model.buffers())
    trained = [p for p in parameters if p.requires_grad]
    given = [x for x in tree_leaves(inputs) if isinstance(x, torch.Tensor)]
    with ExitStack() as stack:
        recorder = stack.enter_context(Recorder())
        stack.enter_context(AsGpu())
        for tensor in (*parameters, *model.buffers(), *given):
            recorder.forget(tensor)
        output = model(*inputs)
        value = loss(output)
        value.backward()
        held = [recorder.index_of(p.grad) for p in trained if p.grad is not None]
        events, number = recorder.taken()
    return Recording(
        parameters=tuple(_bytes(p) for p in trained),
        constants=tuple(_bytes(x) for x in constants),
        inputs=tuple(_bytes(x) for x in given),
        events=tuple(events),
        gradients=frozenset(number[i] for i in held if i is not None and i >= 0),
    )
