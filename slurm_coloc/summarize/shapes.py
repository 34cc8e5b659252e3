# SPDX-License-Identifier: Apache-2.0
"""What the commonest operators give, without FakeTensorMode's own way round.

FakeTensorMode asks a cache with a key of everything that an operator reads, and where the cache has
nothing it often runs the operator as a dozen others (batch normalisation: 8 ms). For the operators
here the shapes are plain: those with a C++ kernel for meta tensors are asked directly, operators
that write into their first argument give it back, and convolutions and norms are written down.
Whatever is not plain (values that are known, several devices, other layouts) stays
FakeTensorMode's. The recordings are the same, to the byte (tests/unit/summarize/test_shapes.py),
but for layer normalisation, which gives what CUDA's gives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager

_ATEN = torch.ops.aten
#: PyTorch's engine asks for every tensor's device, again and again
DEVICE = torch.ops.prim.device.default
#: of the fake modes that are active, the innermost last
ACTIVE: list[Shapes] = []
_CPU, _META = torch.device("cpu"), torch.device("meta")
_new = _ATEN.empty.memory_format
_subclass = torch.Tensor._make_subclass
#: reading a fake tensor's memory is an error that says so; not in older releases
_no_pointer = getattr(torch._C, "_set_throw_on_mutable_data_ptr", lambda made: None)

#: with kernels for meta tensors in C++, results of which depend on shapes and types only
_DIRECT = """
detach.default view.default _unsafe_view.default t.default permute.default transpose.int
select.int slice.Tensor unsqueeze.default squeeze.dim squeeze.dims expand.default unbind.int
split.Tensor split_with_sizes.default as_strided.default alias.default
mm.default bmm.default baddbmm.default cat.default
_softmax.default _softmax_backward_data.default _log_softmax.default
_log_softmax_backward_data.default
sum.dim_IntList mean.dim clone.default avg_pool2d.default avg_pool2d_backward.default
max_pool2d_with_indices.default max_pool2d_with_indices_backward.default
"""
#: one element out for one in; the kernels for meta tensors of some are Python's, and slow
_ALIKE = """
add.Tensor sub.Tensor mul.Tensor div.Tensor add.Scalar sub.Scalar mul.Scalar div.Scalar
pow.Tensor_Scalar neg.default exp.default sqrt.default rsqrt.default reciprocal.default abs.default
relu.default gelu.default silu.default sigmoid.default tanh.default hardtanh.default
leaky_relu.default elu.default mish.default hardsigmoid.default hardswish.default
threshold_backward.default gelu_backward.default silu_backward.default sigmoid_backward.default
tanh_backward.default elu_backward.default leaky_relu_backward.default mish_backward.default
hardsigmoid_backward.default hardswish_backward.default hardtanh_backward.default
"""
#: of these, those that PyTorch's own kernels for meta tensors give every layout
_STRIDED_NAMES = """
add.Tensor sub.Tensor mul.Tensor div.Tensor pow.Tensor_Scalar neg.default sqrt.default relu.default
gelu.default silu.default sigmoid.default threshold_backward.default gelu_backward.default
sigmoid_backward.default
"""
#: these write into their first argument and change no shape
_IN_PLACE = """
normal_.default uniform_.default zero_.default fill_.Scalar copy_.default add_.Tensor mul_.Tensor
sub_.Tensor div_.Tensor clamp_.default erfinv_.default bernoulli_.float relu_.default
silu_.default hardtanh_.default hardswish_.default sigmoid_.default leaky_relu_.default
"""


def _named(names: str) -> frozenset[Any]:
    found = set()
    for name in names.split():
        operator, _, overload = name.partition(".")
        packet = getattr(_ATEN, operator, None)
        if packet is not None and overload in packet.overloads():
            found.add(getattr(packet, overload))
    return frozenset(found)


_STRIDED = _named(_STRIDED_NAMES)


class Shapes:
    """For the tensors of ``mode``. Called with an operator and its arguments it gives the result,
    or NotImplemented."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self._mode = mode
        self._state: dict[torch.device, dict[str, Any]] = {}
        self._rules: dict[Any, Callable[[Any, Any, Any], Any]] = {
            **dict.fromkeys(_named(_DIRECT), self._direct),
            **dict.fromkeys(_named(_ALIKE), self._alike),
            **dict.fromkeys(_named(_IN_PLACE), self._in_place),
            _ATEN.empty.memory_format: self._made,
            _ATEN.addmm.default: self._addmm,
            _ATEN.convolution.default: self._convolution,
            _ATEN.convolution_backward.default: self._convolution_backward,
            _ATEN.native_batch_norm.default: self._batch_norm,
            _ATEN.native_batch_norm_backward.default: self._batch_norm_backward,
            _ATEN.native_layer_norm.default: self._layer_norm,
            _ATEN.native_layer_norm_backward.default: self._layer_norm_backward,
        }

    def __call__(self, func: Any, args: Any, kwargs: Any) -> Any:
        rule = self._rules.get(func)
        return NotImplemented if rule is None else rule(func, args, kwargs)

    def _plain(self, args: Any) -> torch.device | None:
        """The one device of all tensors in ``args``; None where FakeTensorMode must look: at
        tensors of others, at several devices, and where the values of all are known."""
        device = None
        known = True
        for given in args:
            for one in given if type(given) is list or type(given) is tuple else (given,):
                if not isinstance(one, torch.Tensor):
                    continue
                if type(one) is not FakeTensor or one.fake_mode is not self._mode:
                    return None
                known = known and one.constant is not None
                if device is None:
                    device = one.fake_device
                elif device != one.fake_device:
                    return None
        return None if known else device

    def _direct(self, func: Any, args: Any, kwargs: Any) -> Any:
        device = self._plain(args)
        if device is None or "device" in kwargs:
            return NotImplemented
        with in_kernel_invocation_manager(self._mode):
            made = func(*args, **kwargs)
        if isinstance(made, torch.Tensor):
            return self._fake(made, device)
        return type(made)(self._fake(one, device) for one in made)

    def _fake(self, made: torch.Tensor, device: torch.device) -> FakeTensor:
        """``made`` as FakeTensor(mode, made, device), whose checks and memos take longer than most
        operators: all that a fresh one has is the first one's."""
        state = self._state.get(device)
        if state is None:
            one = FakeTensor(self._mode, made, device)
            self._state[device] = dict(one.__dict__)
            return one
        one = _subclass(
            FakeTensor, made, False, dispatch_device=True, device_for_backend_keys=device
        )
        _no_pointer(one)
        one.__dict__.update(state)
        return one

    def view(self, func: Any, args: Any) -> FakeTensor:
        """The one result of an operator for its first argument's device, values left out."""
        with in_kernel_invocation_manager(self._mode):
            made = func(*args)
        return self._fake(made, args[0].fake_device)

    def like(self, real: torch.Tensor) -> FakeTensor:
        """Of the shape and type of a tensor on the CPU."""
        return cast(FakeTensor, self._empty(real.device, (real.shape, real.dtype))[0])

    def _alike(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Of floats, where all tensors have one shape and type."""
        first = args[0]
        if type(first) is not FakeTensor or not first.is_floating_point():
            return NotImplemented
        device = self._plain(args)
        if device is None:
            return NotImplemented
        if not _contiguous(first):
            return self._direct(func, args, kwargs) if func in _STRIDED else NotImplemented
        shape, dtype = first.shape, first.dtype
        for one in args[1:]:
            if isinstance(one, torch.Tensor):
                if one.shape != shape or one.dtype is not dtype or not _contiguous(one):
                    return self._direct(func, args, kwargs)
            elif isinstance(one, complex):
                return NotImplemented
        return self._empty(device, (shape, dtype))[0]

    def _in_place(self, func: Any, args: Any, kwargs: Any) -> Any:
        if self._plain(args[:1]) is None:
            return NotImplemented
        return args[0]

    def _empty(self, device: torch.device, *like: tuple[Any, torch.dtype] | None) -> Any:
        """Contiguous tensors of those shapes; None for None."""
        with in_kernel_invocation_manager(self._mode):
            made = [
                None if one is None else _new(one[0], dtype=one[1], device=_META) for one in like
            ]
        return tuple(None if x is None else self._fake(x, device) for x in made)

    def _made(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Of numbers alone, on the CPU."""
        device = kwargs.get("device") or _CPU
        if device.type != "cpu" or kwargs.get("layout") or kwargs.get("memory_format"):
            return NotImplemented
        if not all(type(side) is int and side >= 0 for side in args[0]):
            return NotImplemented
        return self._empty(_CPU, (args[0], kwargs.get("dtype") or torch.get_default_dtype()))[0]

    def _addmm(self, func: Any, args: Any, kwargs: Any) -> Any:
        device = self._plain(args)
        left, right = args[1:3]
        if device is None or left.dim() != 2 or right.dim() != 2 or left.dtype is not right.dtype:
            return NotImplemented
        if left.shape[1] != right.shape[0]:
            return NotImplemented  # an error, which FakeTensorMode tells better
        return self._empty(device, ((left.shape[0], right.shape[1]), left.dtype))[0]

    def _convolution(self, func: Any, args: Any, kwargs: Any) -> Any:
        given, weight, _, stride, padding, dilation, transposed = args[:7]
        device = self._plain(args[:3])
        if device is None or transposed or not _contiguous(given, weight):
            return NotImplemented
        sides = given.shape[2:]
        if given.dim() < 3 or weight.dim() != given.dim() or 0 in given.shape:
            return NotImplemented
        many = len(sides)
        out = [
            (side + 2 * pad - step * (kernel - 1) - 1) // move + 1
            for side, kernel, move, pad, step in zip(
                sides,
                weight.shape[2:],
                _each(stride, many),
                _each(padding, many),
                _each(dilation, many),
                strict=True,
            )
        ]
        if given.shape[1] != weight.shape[1] * args[8] or min(out) < 1:
            return NotImplemented  # an error, which FakeTensorMode tells better
        return self._empty(device, ((given.shape[0], weight.shape[0], *out), given.dtype))[0]

    def _convolution_backward(self, func: Any, args: Any, kwargs: Any) -> Any:
        gradient, given, weight, bias = args[:4]
        wanted = args[10]
        device = self._plain(args[:3])
        if device is None or args[7] or not _contiguous(given, weight):
            return NotImplemented
        if 0 in given.shape or given.dim() < 3:
            return NotImplemented
        return self._empty(
            device,
            (given.shape, gradient.dtype) if wanted[0] else None,
            (weight.shape, gradient.dtype) if wanted[1] else None,
            (bias, gradient.dtype) if wanted[2] and bias is not None else None,
        )

    def _batch_norm(self, func: Any, args: Any, kwargs: Any) -> Any:
        given, training = args[0], args[5]
        device = self._plain(args[:5])
        if device is None or not training or not _fp32(*args[:3]) or not _contiguous(given):
            return NotImplemented
        for running in args[3:5]:
            if running is not None and running.constant is not None:
                self._mode.fake_tensor_converter.invalidate_constant_aliases(running.constant)
        each = ((given.shape[1],), given.dtype)
        return self._empty(device, (given.shape, given.dtype), each, each)

    def _batch_norm_backward(self, func: Any, args: Any, kwargs: Any) -> Any:
        gradient, given, weight = args[:3]
        training, _, wanted = args[7:10]
        device = self._plain(args[:7])
        if device is None or not training or not _fp32(gradient, given, weight):
            return NotImplemented
        if not _contiguous(given, gradient):
            return NotImplemented
        each = ((given.shape[1],), given.dtype)
        return self._empty(
            device,
            (given.shape, given.dtype) if wanted[0] else None,
            each if wanted[1] else None,
            each if wanted[2] else None,
        )

    def _layer_norm(self, func: Any, args: Any, kwargs: Any) -> Any:
        """CUDA's gives contiguous tensors whatever it reads (layer_norm_kernel.cu)."""
        given, over = args[:2]
        device = self._plain((given, *args[2:4]))
        if device is None or not _fp32(given, *args[2:4]):
            return NotImplemented
        outer = given.dim() - len(over)
        each = ((*given.shape[:outer], *(1 for _ in over)), given.dtype)
        return self._empty(device, (given.shape, given.dtype), each, each)

    def _layer_norm_backward(self, func: Any, args: Any, kwargs: Any) -> Any:
        gradient, given, over, _, _, weight, bias, wanted = args
        device = self._plain((gradient, given, weight, bias))
        if device is None or not _fp32(gradient, given, weight, bias):
            return NotImplemented
        return self._empty(
            device,
            (given.shape, given.dtype) if wanted[0] else None,
            (over, given.dtype) if wanted[1] and weight is not None else None,
            (over, given.dtype) if wanted[2] and bias is not None else None,
        )


def shortly(func: Any, args: Any, kwargs: Any) -> Any:
    """What ``func`` gives, without the way through PyTorch's dispatcher where the innermost fake
    mode has a rule for it."""
    if ACTIVE:
        plain = ACTIVE[-1](func, args, kwargs)
        if plain is not NotImplemented:
            return plain
    return func(*args, **kwargs)


def _each(value: Any, many: int) -> list[int]:
    """A stride or padding for each side."""
    return list(value) * many if len(value) == 1 else list(value)


def _contiguous(*tensors: torch.Tensor) -> bool:
    return all(one.is_contiguous() for one in tensors)


def _fp32(*tensors: torch.Tensor | None) -> bool:
    return all(one is None or one.dtype is torch.float32 for one in tensors)
