# SPDX-License-Identifier: Apache-2.0
"""Shapes of what layers give, written down: matrix products, convolutions, norms.

Each is NotImplemented where it is not plain: other layouts, errors, several devices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from slurm_coloc.summarize.fake.fresh import Fresh
from slurm_coloc.summarize.fake.operators import ATEN

Rule = Callable[[Any, Any, Any], Any]


class Layers:
    """For the tensors of one fake mode."""

    def __init__(self, fresh: Fresh) -> None:
        self._fresh = fresh

    def rules(self) -> dict[Any, Rule]:
        """By operator."""
        return {
            ATEN.addmm.default: self._addmm,
            ATEN.convolution.default: self._convolution,
            ATEN.convolution_backward.default: self._convolution_backward,
            ATEN.native_batch_norm.default: self._batch_norm,
            ATEN.native_batch_norm_backward.default: self._batch_norm_backward,
            ATEN.native_group_norm.default: self._group_norm,
            ATEN.native_group_norm_backward.default: self._group_norm_backward,
            ATEN.native_layer_norm.default: self._layer_norm,
            ATEN.native_layer_norm_backward.default: self._layer_norm_backward,
        }

    def _addmm(self, func: Any, args: Any, kwargs: Any) -> Any:
        device = self._fresh.device(args)
        left, right = args[1:3]
        if device is None or left.dim() != 2 or right.dim() != 2 or left.dtype is not right.dtype:
            return NotImplemented
        if left.shape[1] != right.shape[0]:
            return NotImplemented  # an error, which FakeTensorMode tells better
        return self._fresh.empty(device, ((left.shape[0], right.shape[1]), left.dtype))[0]

    def _convolution(self, func: Any, args: Any, kwargs: Any) -> Any:
        given, weight, _, stride, padding, dilation, transposed = args[:7]
        device = self._fresh.device(args[:3])
        if device is None or transposed or not _contiguous(given, weight):
            return NotImplemented
        sides = given.shape[2:]
        if given.dim() < 3 or weight.dim() != given.dim() or 0 in given.shape:
            return NotImplemented
        each = (_each(one, len(sides)) for one in (stride, padding, dilation))
        out = [
            (side + 2 * pad - step * (kernel - 1) - 1) // move + 1
            for side, kernel, move, pad, step in zip(sides, weight.shape[2:], *each, strict=True)
        ]
        if given.shape[1] != weight.shape[1] * args[8] or min(out) < 1:
            return NotImplemented  # an error, which FakeTensorMode tells better
        return self._fresh.empty(device, ((given.shape[0], weight.shape[0], *out), given.dtype))[0]

    def _convolution_backward(self, func: Any, args: Any, kwargs: Any) -> Any:
        gradient, given, weight, bias = args[:4]
        wanted = args[10]
        device = self._fresh.device(args[:3])
        if device is None or args[7] or not _contiguous(given, weight):
            return NotImplemented
        if 0 in given.shape or given.dim() < 3:
            return NotImplemented
        return self._gradients(device, gradient.dtype, wanted, given.shape, weight.shape, bias)

    def _gradients(
        self, device: torch.device, dtype: torch.dtype, wanted: Any, *shapes: Any
    ) -> tuple[Any, ...]:
        """Tensors of these shapes; None for what is not ``wanted`` or has no shape."""
        pairs = zip(wanted, shapes, strict=True)
        return self._fresh.empty(
            device, *((shape, dtype) if one and shape is not None else None for one, shape in pairs)
        )

    def _batch_norm(self, func: Any, args: Any, kwargs: Any) -> Any:
        given, training = args[0], args[5]
        device = self._fresh.device(args[:5])
        if device is None or not training or not _fp32(*args[:3]) or not _contiguous(given):
            return NotImplemented
        for running in args[3:5]:
            if running is not None and running.constant is not None:
                self._fresh.mode.fake_tensor_converter.invalidate_constant_aliases(running.constant)
        each = ((given.shape[1],), given.dtype)
        return self._fresh.empty(device, (given.shape, given.dtype), each, each)

    def _batch_norm_backward(self, func: Any, args: Any, kwargs: Any) -> Any:
        gradient, given, weight = args[:3]
        training, _, wanted = args[7:10]
        device = self._fresh.device(args[:7])
        if device is None or not training or not _fp32(gradient, given, weight):
            return NotImplemented
        if not _contiguous(given, gradient):
            return NotImplemented
        each = (given.shape[1],)
        return self._gradients(device, given.dtype, wanted, given.shape, each, each)

    def _group_norm(self, func: Any, args: Any, kwargs: Any) -> Any:
        given, weight, bias, samples, _, _, groups = args[:7]
        device = self._fresh.device(args[:3])
        if device is None or not _fp32(given, weight, bias) or not _contiguous(given):
            return NotImplemented
        each = ((samples, groups), given.dtype)
        return self._fresh.empty(device, (given.shape, given.dtype), each, each)

    def _group_norm_backward(self, func: Any, args: Any, kwargs: Any) -> Any:
        gradient, given, _, _, weight, _, channels, _, _, wanted = args
        device = self._fresh.device(args[:5])
        plain = _fp32(gradient, given, weight) and _contiguous(gradient, given)
        if device is None or not plain:
            return NotImplemented
        each = (channels,)
        return self._gradients(device, given.dtype, wanted, given.shape, each, each)

    def _layer_norm(self, func: Any, args: Any, kwargs: Any) -> Any:
        """CUDA's gives contiguous tensors whatever it reads (layer_norm_kernel.cu)."""
        given, over = args[:2]
        device = self._fresh.device((given, *args[2:4]))
        if device is None or not _fp32(given, *args[2:4]):
            return NotImplemented
        outer = given.dim() - len(over)
        each = ((*given.shape[:outer], *(1 for _ in over)), given.dtype)
        return self._fresh.empty(device, (given.shape, given.dtype), each, each)

    def _layer_norm_backward(self, func: Any, args: Any, kwargs: Any) -> Any:
        gradient, given, over, _, _, weight, bias, wanted = args
        device = self._fresh.device((gradient, given, weight, bias))
        if device is None or not _fp32(gradient, given, weight, bias):
            return NotImplemented
        shapes = (None if one is None else over for one in (weight, bias))
        return self._gradients(device, given.dtype, wanted, given.shape, *shapes)


def _each(value: Any, many: int) -> list[int]:
    """A stride or padding for each side."""
    return list(value) * many if len(value) == 1 else list(value)


def _contiguous(*tensors: torch.Tensor) -> bool:
    return all(one.is_contiguous() for one in tensors)


def _fp32(*tensors: torch.Tensor | None) -> bool:
    return all(one is None or one.dtype is torch.float32 for one in tensors)
