# SPDX-License-Identifier: Apache-2.0
"""Fake tensors, made without FakeTensorMode's checks and memos, which take longer than most
operators."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager

CPU, META = torch.device("cpu"), torch.device("meta")
_new = torch.ops.aten.empty.memory_format
_strided = torch.ops.aten.empty_strided.default
_subclass = torch.Tensor._make_subclass
#: what runs inside is PyTorch's own C++, no mode of Python's
below = torch._C._DisableTorchDispatch
#: reading a fake tensor's memory is an error that says so; not in older releases
_no_pointer = getattr(torch._C, "_set_throw_on_mutable_data_ptr", lambda made: None)

#: shape and type
Like = tuple[Any, torch.dtype]


class Fresh:
    """Tensors of ``mode``."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self.mode = mode
        self._state: dict[torch.device, dict[str, Any]] = {}

    def device(self, args: Any) -> torch.device | None:
        """The one device of all tensors in ``args``; None where FakeTensorMode must look: at
        tensors of others, at several devices, and where the values of all are known."""
        device = None
        known = True
        for given in args:
            for one in given if type(given) is list or type(given) is tuple else (given,):
                if type(one) is not FakeTensor:
                    if isinstance(one, torch.Tensor):
                        return None
                    continue
                if one.fake_mode is not self.mode:
                    return None
                known = known and one.constant is not None
                if device is None:
                    device = one.fake_device
                elif device != one.fake_device:
                    return None
        return None if known else device

    def direct(self, func: Any, args: Any, kwargs: Any) -> Any:
        """What the kernel for meta tensors gives."""
        with in_kernel_invocation_manager(self.mode):
            return func(*args, **kwargs)

    def fake(self, made: torch.Tensor, device: torch.device) -> FakeTensor:
        """``made`` as FakeTensor(mode, made, device): all that a fresh one has is the first
        one's."""
        state = self._state.get(device)
        if state is None:
            one = FakeTensor(self.mode, made, device)
            self._state[device] = dict(one.__dict__)
            return one
        one = _subclass(
            FakeTensor, made, False, dispatch_device=True, device_for_backend_keys=device
        )
        _no_pointer(one)
        one.__dict__.update(state)
        return one

    def empty(self, device: torch.device, *like: Like | None) -> tuple[Any, ...]:
        """Contiguous tensors of those shapes; None for None."""
        with below():
            made = [None if x is None else _new(x[0], dtype=x[1], device=META) for x in like]
        return tuple(None if x is None else self.fake(x, device) for x in made)

    def strided(self, device: torch.device, shape: Any, stride: Any, dtype: Any) -> FakeTensor:
        """One of any layout, in a storage of its own."""
        with below():
            made = _strided(shape, stride, dtype=dtype, device=META)
        return self.fake(made, device)

    def like(self, real: torch.Tensor) -> FakeTensor:
        """Contiguous, of the shape and type of a tensor on the CPU."""
        return cast(FakeTensor, self.empty(real.device, (real.shape, real.dtype))[0])
