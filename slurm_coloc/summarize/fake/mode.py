# SPDX-License-Identifier: Apache-2.0
"""Where models and batches are made and run without their numbers.

PyTorch's FakeTensorMode, with two additions. Small tensors that are made from numbers alone
(``torch.linspace(0, rate, depth)``, ``torch.arange``) keep their values, for model code asks for
them. And ``.item()`` of a tensor that has none answers with what lets the step go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, cast
from unittest import mock

import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from slurm_coloc.summarize.fake.fresh import Fresh
from slurm_coloc.summarize.fake.operators import ATEN
from slurm_coloc.summarize.fake.shapes import ACTIVE, DEVICE, Shapes
from slurm_coloc.summarize.fake.values import SMALL, Values

_ITEM = ATEN._local_scalar_dense.default


class _Short(TorchDispatchMode):
    """Answers in place of FakeTensorMode for operators with which that takes long; see shapes."""

    def __init__(self, mode: FakeTensorMode) -> None:
        super().__init__()
        fresh = Fresh(mode)
        self._shapes, self._values = Shapes(fresh), Values(fresh)

    def __enter__(self) -> _Short:
        ACTIVE.append(self._shapes)
        super().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        ACTIVE.remove(self._shapes)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and the switch costs more than most operators

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is DEVICE and type(args[0]) is FakeTensor:
            return args[0].fake_device
        plain = self._values(func, args, kwargs)
        if plain is not NotImplemented:
            return plain
        plain = self._shapes(func, args, kwargs)
        if plain is not NotImplemented:
            return plain
        if func is _ITEM:
            try:
                return func(*args, **kwargs)
            except DataDependentOutputException:
                return _scalar(args[0])
        made = func(*args, **kwargs)
        self._shapes.learn(func, args, kwargs, made)
        return made


def _scalar(tensor: torch.Tensor) -> bool | int | float:
    """The value that ``.item()`` gives: no flag is set, and no count is zero."""
    if tensor.dtype is torch.bool:
        return False
    return 0.0 if tensor.dtype.is_floating_point else 1


@contextmanager
def fake() -> Iterator[FakeTensorMode]:
    """All tensors made inside are fake and on the CPU."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    before = fake_tensor.CONSTANT_NUMEL_LIMIT  # elements up to which results keep values too
    fake_tensor.CONSTANT_NUMEL_LIMIT = SMALL
    try:
        with (
            mode,
            _Short(mode),
            _without_numbers(),
            mock.patch.object(torch.nn.Module, "_apply", _convert),
            mock.patch.object(torch.Tensor, "__deepcopy__", _copied(torch.Tensor.__deepcopy__)),
        ):
            yield mode
    finally:
        fake_tensor.CONSTANT_NUMEL_LIMIT = before


#: through which torch.nn.init writes random numbers and constants
_INITIAL = "uniform_ normal_ trunc_normal_ fill_ zero_"


@contextmanager
def _without_numbers() -> Iterator[None]:
    """Initialisation is skipped for tensors that have no values."""
    with ExitStack() as stack:
        for name in _INITIAL.split():
            own = getattr(torch.nn.init, f"_no_grad_{name}", None)
            if own is not None:
                change = mock.patch.object(torch.nn.init, f"_no_grad_{name}", _drawn(own))
                stack.enter_context(change)
        yield


def _drawn(own: Any) -> Any:
    def draw(tensor: torch.Tensor, *given: Any, **named: Any) -> torch.Tensor:
        if type(tensor) is FakeTensor and tensor.constant is None:
            return tensor
        return cast(torch.Tensor, own(tensor, *given, **named))

    return draw


def _copied(own: Any) -> Any:
    """Tensor.__deepcopy__ as ``own``, but for fake tensors: PyTorch's copies a storage that is not
    there, and may end the process with it."""

    def copy(self: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
        if not isinstance(self, FakeTensor) or id(self) in memo:
            return cast(torch.Tensor, own(self, memo))
        made = self.detach().clone()
        if isinstance(self, torch.nn.Parameter):
            made = torch.nn.Parameter(made, self.requires_grad)
        elif self.is_leaf:
            made.requires_grad_(self.requires_grad)
        memo[id(self)] = made
        return made

    return copy


def _convert(self: torch.nn.Module, fn: Any, recurse: bool = True) -> torch.nn.Module:
    """Module._apply, by which to(), half() and cuda() change a module: PyTorch's own refuses fake
    parameters. Here a changed parameter is another one."""
    known: dict[int, Any] = {}
    for module in self.modules() if recurse else (self,):
        for tensors in (module._parameters, module._buffers):
            for name, given in tensors.items():
                if given is None:
                    continue
                if id(given) not in known:
                    with torch.no_grad():
                        made = fn(given)
                    if made is not given and isinstance(given, torch.nn.Parameter):
                        made = torch.nn.Parameter(made, given.requires_grad)
                    known[id(given)] = given if _same(made, given) else made
                tensors[name] = known[id(given)]
        flatten = getattr(module, "_init_flat_weights", None)  # recurrent modules
        if flatten is not None:
            flatten()
    return self


def _same(made: torch.Tensor, given: torch.Tensor) -> bool:
    return made.dtype == given.dtype and made.device == given.device and made.shape == given.shape
