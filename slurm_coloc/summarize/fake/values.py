# SPDX-License-Identifier: Apache-2.0
"""Values of small tensors that are made from numbers alone, which model code asks for."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from slurm_coloc.summarize.fake.fresh import Fresh, below
from slurm_coloc.summarize.fake.operators import ATEN, named

#: elements of the largest tensor whose values are kept
SMALL = 4096

_SIZED = named("zeros.default ones.default full.default")
_STEPPED = named("linspace.default logspace.default")
_COUNTED = named("arange.default arange.start arange.start_step")
NUMBERS = _SIZED | _STEPPED | _COUNTED | named("scalar_tensor.default")
_COPY, _LIFT = ATEN.copy_.default, ATEN.lift_fresh.default
_WRITES = named("zero_.default fill_.Scalar add_.Tensor sub_.Tensor mul_.Tensor div_.Tensor")
#: a view made by FakeTensorMode would get a storage of its own, which CUDA's does not
_VIEWS = named("""
select.int slice.Tensor view.default _unsafe_view.default _reshape_alias.default detach.default
alias.default t.default permute.default transpose.int expand.default as_strided.default
squeeze.default squeeze.dim squeeze.dims unsqueeze.default unfold.default diagonal.default
unbind.int split.Tensor split_with_sizes.default
""")


class Values:
    """For the tensors of one fake mode. Called with an operator and its arguments it gives the
    result with its values, or NotImplemented. As FakeTensorMode does it, in a tenth of the time:
    some models fill tables number by number, and each norm counts its batches."""

    def __init__(self, fresh: Fresh) -> None:
        self._fresh = fresh

    def __call__(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func in NUMBERS:
            return self._made(func, args, kwargs)
        if func is _LIFT:
            one = args[0]
            if type(one) is not torch.Tensor or one.numel() > 1 or one.device.type != "cpu":
                return NotImplemented
            return self._known(self._fresh.like(one), one)
        if func is _COPY or func in _WRITES:
            return self._written(func, args, kwargs)
        if func in _VIEWS:
            known = args[0].constant if type(args[0]) is FakeTensor else None
            if known is None:
                return NotImplemented
            return self._viewed(func, known, args, kwargs)
        return NotImplemented

    def _made(self, func: Any, args: Any, kwargs: Any) -> Any:
        device = kwargs.get("device")
        if (device is not None and device.type != "cpu") or kwargs.get("layout"):
            return NotImplemented
        if not _elements(func, args) <= SMALL:
            return NotImplemented
        with below():
            real = func(*args, **kwargs)
        return self._known(self._fresh.like(real), real)

    def _written(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Into known values other known ones, or numbers."""
        if kwargs or len(args) > 2:
            return NotImplemented
        given = [one.constant if type(one) is FakeTensor else one for one in args]
        if not isinstance(given[0], torch.Tensor) or any(one is None for one in given):
            return NotImplemented
        with below():
            func(*given)
        return args[0]

    def _viewed(self, func: Any, known: torch.Tensor, args: Any, kwargs: Any) -> Any:
        with below():
            values = func(known, *args[1:], **kwargs)
        made = self._fresh.direct(func, args, kwargs)
        device = args[0].fake_device
        if isinstance(made, torch.Tensor):
            return self._known(self._fresh.fake(made, device), values)
        return type(made)(
            self._known(self._fresh.fake(one, device), value)
            for one, value in zip(made, values, strict=True)
        )

    def _known(self, made: FakeTensor, values: torch.Tensor) -> FakeTensor:
        made.constant = values
        converter = self._fresh.mode.fake_tensor_converter
        converter.add_constant_storage_mapping(made)
        converter.set_tensor_memo(values, made)
        return made


def _elements(func: Any, args: Any) -> float:
    """Of what is made from these numbers."""
    if not all(type(one) in (int, float, list) for one in args):
        return float("inf")
    if func in _SIZED:
        return prod(args[0])
    if func in _STEPPED:
        return float(args[2])
    if func in _COUNTED:
        start, end = (0, args[0]) if len(args) == 1 else args[:2]
        return abs((end - start) / (args[2] if len(args) > 2 else 1))
    return 1
