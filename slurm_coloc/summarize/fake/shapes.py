# SPDX-License-Identifier: Apache-2.0
"""What the commonest operators give, without FakeTensorMode's own way round.

FakeTensorMode asks a cache with a key of everything that an operator reads, and where the cache has
nothing it often runs the operator as a dozen others (batch normalisation: 8 ms). For the operators
here the shapes are plain: those with a C++ kernel for meta tensors are asked directly, operators
that write into their first argument give it back, convolutions and norms are written down (see
layers), and what is left is remembered (memo). Whatever is not plain (values that are known,
several devices) stays FakeTensorMode's. The recordings are the same, to the byte
(tests/unit/summarize/test_shapes.py), but for layer normalisation, which gives what CUDA's gives.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from slurm_coloc.summarize.fake.fresh import CPU, Fresh
from slurm_coloc.summarize.fake.layers import Layers, Rule
from slurm_coloc.summarize.fake.memo import Memo
from slurm_coloc.summarize.fake.operators import ALIKE, DIRECT, IN_PLACE, MADE, STRIDED, VIEWS

#: PyTorch's engine asks for every tensor's device, again and again
DEVICE = torch.ops.prim.device.default
#: of the fake modes that are active, the innermost last
ACTIVE: list[Shapes] = []


class Shapes:
    """For the tensors of a fake mode. Called with an operator and its arguments it gives the
    result, or NotImplemented."""

    def __init__(self, fresh: Fresh) -> None:
        self._fresh = fresh
        self._memo = Memo(fresh)
        self._rules: dict[Any, Rule] = {
            **dict.fromkeys(VIEWS, self._direct),
            **dict.fromkeys(DIRECT, self._again),
            **dict.fromkeys(ALIKE, self._alike),
            **dict.fromkeys(IN_PLACE, self._in_place),
            **dict.fromkeys(MADE, self._made),
            **Layers(fresh).rules(),
        }

    def __call__(self, func: Any, args: Any, kwargs: Any) -> Any:
        rule = self._rules.get(func)
        if rule is not None:
            plain = rule(func, args, kwargs)
            if plain is not NotImplemented:
                return plain
        key = self._memo.key(func, args, kwargs)
        return NotImplemented if key is None else self._memo.known(key)

    def learn(self, func: Any, args: Any, kwargs: Any, made: Any) -> None:
        """``made`` is what FakeTensorMode gave where there was no answer."""
        key = self._memo.key(func, args, kwargs)
        if key is not None:
            self._memo.learn(key, (args, list(kwargs.values())), made)

    def _direct(self, func: Any, args: Any, kwargs: Any) -> Any:
        device = self._fresh.device(args)
        if device is None or "device" in kwargs:
            return NotImplemented
        made = self._fresh.direct(func, args, kwargs)
        if isinstance(made, torch.Tensor):
            return self._fresh.fake(made, device)
        return type(made)(self._fresh.fake(one, device) for one in made)

    def _again(self, func: Any, args: Any, kwargs: Any) -> Any:
        key = self._memo.key(func, args, kwargs)
        if key is None:
            return NotImplemented
        made = self._memo.known(key)
        if made is NotImplemented:
            made = self._direct(func, args, kwargs)
            if made is not NotImplemented:
                self._memo.learn(key, args, made)
        return made

    def _alike(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Of floats, where all tensors have one shape and type."""
        first = args[0]
        if type(first) is not FakeTensor or not first.is_floating_point():
            return NotImplemented
        device = self._fresh.device(args)
        if device is None:
            return NotImplemented
        if not first.is_contiguous():
            return self._again(func, args, kwargs) if func in STRIDED else NotImplemented
        shape, dtype = first.shape, first.dtype
        for one in args[1:]:
            if isinstance(one, torch.Tensor):
                if one.shape != shape or one.dtype is not dtype or not one.is_contiguous():
                    return self._again(func, args, kwargs)
            elif isinstance(one, complex):
                return NotImplemented
        return self._fresh.empty(device, (shape, dtype))[0]

    def _in_place(self, func: Any, args: Any, kwargs: Any) -> Any:
        return NotImplemented if self._fresh.device(args[:1]) is None else args[0]

    def _made(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Of numbers alone, on the CPU."""
        device = kwargs.get("device") or CPU
        if device.type != "cpu" or kwargs.get("memory_format"):
            return NotImplemented
        if kwargs.get("layout") not in (None, torch.strided):
            return NotImplemented
        if not all(type(side) is int and side >= 0 for side in args[0]):
            return NotImplemented
        dtype = kwargs.get("dtype") or torch.get_default_dtype()
        return self._fresh.empty(CPU, (args[0], dtype))[0]


def shortly(func: Any, args: Any, kwargs: Any) -> Any:
    """What ``func`` gives, without the way through PyTorch's dispatcher where the innermost fake
    mode has a rule for it."""
    if ACTIVE:
        plain = ACTIVE[-1](func, args, kwargs)
        if plain is not NotImplemented:
            return plain
    return func(*args, **kwargs)
