# SPDX-License-Identifier: Apache-2.0
"""Where a script's training is seen: loaders, models, optimizers. All patches last as long as the
process, which ends with the recording."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.modules import module as modules
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from slurm_coloc.errors import UsageFault
from slurm_coloc.summarize.resize import leading, resized
from slurm_coloc.summarize.script.state import State
from slurm_coloc.summarize.step import tensors

MOST_BATCHES = 4096

try:
    from torch.utils._python_dispatch import _disable_current_modes as without_modes
except ImportError:  # PyTorch 2.2 has it under the name that it keeps since 2.0; be safe
    from contextlib import nullcontext as without_modes


def install(state: State, fork: Callable[[], None], finish: Callable[[], None]) -> None:
    """``fork``: called at the first batch; ``finish``: when the step is recorded."""
    _loaders(state, fork, finish)
    _models(state)
    _optimizers(state, finish)
    torch.compile = _compile
    # One process on one GPU: buckets and copies of several are not recorded.
    torch.nn.DataParallel = torch.nn.parallel.DataParallel = _Alone
    torch.nn.parallel.DistributedDataParallel = _Alone
    torch.distributed.init_process_group = _gloo(torch.distributed.init_process_group)


class _Alone(torch.nn.Module):
    """In place of DataParallel and DistributedDataParallel."""

    def __init__(self, module: torch.nn.Module, *args: Any, **named: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **named: Any) -> Any:
        return self.module(*args, **named)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        yield


def _gloo(begin: Callable[..., Any]) -> Callable[..., Any]:
    def init(backend: Any = None, *args: Any, **named: Any) -> Any:
        named.pop("device_id", None)
        return begin("gloo", *args, **named)

    return init


def _compile(model: Any = None, **named: Any) -> Any:
    """torch.compile left out: its kernels are not known here."""
    return model if model is not None else lambda given: given


def _loaders(state: State, fork: Callable[[], None], finish: Callable[[], None]) -> None:
    begin = DataLoader.__init__
    following = _BaseDataLoaderIter.__next__

    @functools.wraps(begin)
    def init(self: Any, *args: Any, **named: Any) -> None:
        # Positional: dataset, batch_size, shuffle, sampler, batch_sampler, num_workers, ...
        if len(args) > 5:
            args = (*args[:5], 0, *args[6:])
        elif "num_workers" in named:
            named["num_workers"] = 0
        for name in ("prefetch_factor", "multiprocessing_context"):
            named.pop(name, None)
        named |= dict.fromkeys(named.keys() & {"persistent_workers", "pin_memory"}, False)
        begin(self, *args, **named)

    @functools.wraps(following)
    def step(self: Any) -> Any:
        if state.stepped:
            finish()  # the loop is in its second step: the other optimizers wait
        with without_modes():
            batch = following(self)
            size = leading(batch)
            if size is None:
                return batch
            if not state.yields:
                state.batch = size
                fork()
            state.yields += 1
            if state.yields > MOST_BATCHES:
                raise UsageFault(f"no optimizer step within {MOST_BATCHES} batches", "no_step")
            batch = resized(batch, size, state.wanted(size))
        if state.session is None:
            state.given[:] = tensors(batch)
        return batch

    DataLoader.__init__ = init
    _BaseDataLoaderIter.__next__ = step


def _models(state: State) -> None:
    call = torch.nn.Module.__call__
    inside = [0]

    def trains(module: torch.nn.Module) -> bool:
        return (
            module.training
            and torch.is_grad_enabled()
            and any(p.requires_grad for p in module.parameters())
        )

    def outer(self: Any, *args: Any, **named: Any) -> Any:
        if inside[0] or not trains(self):
            return call(self, *args, **named)
        root = state.roots.get(id(self)) or state.add(self, args, named)
        root.calls += 1
        if root.calls == 2 and state.yields >= 2 and state.first is None:
            # The second batch of an accumulated gradient: the first was a whole one.
            assert state.session is not None
            state.first = state.session.recording()
        inside[0] += 1
        try:
            return call(self, *args, **named)
        finally:
            inside[0] -= 1

    torch.nn.Module.__call__ = outer
    modules.Module.__call__ = outer


def _optimizers(state: State, finish: Callable[[], None]) -> None:
    begin = torch.optim.Optimizer.__init__

    @functools.wraps(begin)
    def init(self: Any, *args: Any, **named: Any) -> None:
        begin(self, *args, **named)
        state.optimizers.append(self)

    torch.optim.Optimizer.__init__ = init
    from torch.optim.optimizer import (
        register_optimizer_step_post_hook,
        register_optimizer_step_pre_hook,
    )

    kept: dict[int, list[tuple[Any, Any]]] = {}

    def before(optimizer: Any, args: Any, named: Any) -> None:
        if state.session is None:
            return  # a step without a forward: nothing was trained yet
        if id(optimizer) in state.stepped:
            finish()
        state.stepped.add(id(optimizer))
        held = [p for group in optimizer.param_groups for p in group["params"]]
        if all(id(o) in state.stepped for o in state.optimizers):
            finish()
        # Without gradients the step does nothing; the next optimizer's turn comes first.
        kept[id(optimizer)] = [(p, p.grad) for p in held]
        for parameter in held:
            parameter.grad = None

    def after(optimizer: Any, args: Any, named: Any) -> None:
        for parameter, gradient in kept.pop(id(optimizer), []):
            parameter.grad = gradient

    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)
