# SPDX-License-Identifier: Apache-2.0
"""Results of operators that were seen before with tensors of the same shapes.

A network repeats its blocks, and so the operators with all that they read. What FakeTensorMode
gave the first time is made again from its shapes, where that is all there is to it: new tensors,
each in a storage of its own, of an operator that writes nothing. Its own cache does the same, with
a key and checks that cost several times as much, and leaves some of the slowest out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor

from slurm_coloc.summarize.fake.fresh import Fresh

#: numbers, and what names a type, a layout or a device
_PLAIN = frozenset(
    {int, float, bool, str, type(None), torch.dtype, torch.layout, torch.memory_format}
)
_TAGS = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)


class _Unknown(Exception):
    """Something that no key can be made of."""


class _Result(NamedTuple):
    """Shape, stride and type of each tensor, None for None. ``single``: not a tuple of them."""

    parts: tuple[tuple[Any, Any, torch.dtype] | None, ...]
    device: torch.device
    single: bool


class Memo:
    """For the tensors of one fake mode."""

    def __init__(self, fresh: Fresh) -> None:
        self._fresh = fresh
        self._pure: dict[Any, bool] = {}
        self._results: dict[Any, _Result | None] = {}

    def key(self, func: Any, args: Any, kwargs: Any) -> Any:
        """What the shapes of the result hang on; None where that is more than shapes."""
        pure = self._pure.get(func)
        if pure is None:
            pure = self._pure[func] = _writes_nothing(func)
        if not pure or self._fresh.device(args) is None:
            return None
        try:
            return (func, _key(args), _key(sorted(kwargs.items())) if kwargs else None)
        except _Unknown:
            return None

    def known(self, key: Any) -> Any:
        """The result made again, or NotImplemented."""
        result = self._results.get(key)
        if result is None:
            return NotImplemented
        made = [
            None if part is None else self._fresh.strided(result.device, *part)
            for part in result.parts
        ]
        return made[0] if result.single else tuple(made)

    def learn(self, key: Any, args: Any, made: Any) -> None:
        """``made`` is what FakeTensorMode gave."""
        if key not in self._results:
            self._results[key] = _result(args, made)


def _writes_nothing(func: Any) -> bool:
    schema = getattr(func, "_schema", None)
    if schema is None or schema.is_mutable or func.namespace != "aten":
        return False
    return not any(tag in func.tags for tag in _TAGS)


def _key(given: Any) -> Any:
    kind = type(given)
    if kind is FakeTensor:
        dtype = given.dtype
        if given.layout is not torch.strided or dtype.is_complex:
            raise _Unknown
        return (tuple(given.shape), given.stride(), dtype)
    if kind in _PLAIN:
        return (kind, given)  # 1, 1.0 and True are one key otherwise
    if kind is torch.device:
        return given
    if isinstance(given, (list, tuple)):
        return tuple([_key(one) for one in given])
    raise _Unknown


def _storages(given: Any, found: set[int]) -> set[int]:
    for one in given:
        if isinstance(one, torch.Tensor):
            found.add(one.untyped_storage()._cdata)
        elif isinstance(one, (list, tuple)):
            _storages(one, found)
    return found


def _result(args: Any, made: Any) -> _Result | None:
    """None where it cannot be made again: views, known values, what is no tensor."""
    single = not isinstance(made, tuple)
    parts: list[Any] = []
    used = _storages(args, set())
    device = None
    for one in (made,) if single else made:
        if one is None:
            parts.append(None)
            continue
        if type(one) is not FakeTensor or one.constant is not None or one.requires_grad:
            return None
        storage = one.untyped_storage()
        if storage._cdata in used or one.storage_offset() or storage.nbytes() != _bytes(one):
            return None
        if device is not None and device != one.fake_device:
            return None
        device = one.fake_device
        used.add(storage._cdata)
        parts.append((tuple(one.shape), one.stride(), one.dtype))
    return None if device is None else _Result(tuple(parts), device, single)


def _bytes(one: torch.Tensor) -> int:
    """Of a storage that holds just this tensor."""
    if not one.numel():
        return 0
    last = sum((side - 1) * step for side, step in zip(one.shape, one.stride(), strict=True))
    return (last + 1) * one.element_size()
