# SPDX-License-Identifier: Apache-2.0
"""CUDA's automatic mixed precision on fake CPU tensors.

PyTorch's autocast for the CPU casts the same matrix products, convolutions and attention to half
precision, and keeps the half copies of the weights in the same way. What it does not do, and CUDA
does, is to run norms, softmax, losses and powers in fp32: see _IN_FP32, the list AT_FORALL_FP32 of
ATen/autocast_mode.h (PyTorch 2.13). Functions are met where Python ends, see step.Session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

HALF = torch.float16
_T = torch.Tensor


def enabled() -> bool:
    """Whether autocast for the CPU is on, here standing for CUDA's."""
    try:
        return bool(torch.is_autocast_enabled("cpu"))
    except TypeError:  # before PyTorch 2.4 it takes no device
        return bool(torch.is_autocast_cpu_enabled())


@contextmanager
def amp() -> Iterator[None]:
    """What runs inside is cast as on CUDA."""
    with torch.autocast("cpu", dtype=HALF), Fp32():
        yield


class Fp32(TorchFunctionMode):
    """The functions that CUDA's autocast runs in fp32, wherever autocast is on."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not args or not enabled():
            return func(*args, **kwargs)
        return in_fp32(func, func, args, kwargs)


def in_fp32(func: Any, run: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """``run``, which stands for ``func``, as CUDA's autocast runs that."""
    own = _OWN.get(func)
    if own is not None and isinstance(args[0], _T) and args[0].dtype is HALF:
        return own(run, *args, **kwargs)
    if func in _IN_FP32:
        args, kwargs = tree_map(_up, (args, kwargs))
    return run(*args, **kwargs)


def _up(x: Any) -> Any:
    return x.float() if isinstance(x, _T) and x.dtype is HALF else x


def _softmax(func: Any, x: torch.Tensor, dim: Any = None, *args: Any, **kwargs: Any) -> Any:
    """One kernel on CUDA that reads half and writes fp32."""
    if kwargs.get("dtype") is not None or any(isinstance(a, torch.dtype) for a in args):
        return func(x, dim, *args, **kwargs)
    kernel = torch.ops.aten._log_softmax if "log" in func.__name__ else torch.ops.aten._softmax
    return kernel(x, dim, True)


def _cross_entropy(
    func: Any,
    x: torch.Tensor,
    target: torch.Tensor,
    weight: Any = None,
    reduction: int = 1,
    ignore: Any = -100,
    smoothing: float = 0.0,
) -> Any:
    """log_softmax in half, for it is called with that type, then the loss in fp32."""
    if target.is_floating_point():
        return func(x, target, weight, reduction, ignore, smoothing)
    dim = 0 if x.dim() == 1 else 1
    logits = torch.log_softmax(x, dim, dtype=x.dtype)
    loss = torch._C._nn.nll_loss_nd(logits.float(), target, weight, reduction, ignore)
    if smoothing:
        smooth = -logits.sum(dim, dtype=torch.float32)
        smooth = smooth if reduction == 0 else smooth.mean()
        loss = loss * (1 - smoothing) + smooth * (smoothing / x.shape[dim])
    return loss


def _sum(func: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    if kwargs.get("dtype") is None:
        kwargs["dtype"] = torch.float32
    return func(x, *args, **kwargs)


_OWN: dict[Any, Callable[..., Any]] = {
    torch.softmax: _softmax, _T.softmax: _softmax,
    torch.log_softmax: _softmax, _T.log_softmax: _softmax,
    torch._C._nn.cross_entropy_loss: _cross_entropy,
    torch.sum: _sum, _T.sum: _sum,
}  # fmt: skip
_NAMES = """acos asin cosh cumprod cumsum dist erfinv exp expm1 log log10 log1p log2 logsumexp norm
pow prod reciprocal renorm rsqrt sinh tan __pow__ __rpow__ __rdiv__ __rtruediv__ pdist cdist
layer_norm rms_norm group_norm vector_norm matrix_norm softplus cosine_similarity kl_div
binary_cross_entropy_with_logits cosine_embedding_loss hinge_embedding_loss huber_loss l1_loss
margin_ranking_loss mse_loss multi_margin_loss multilabel_margin_loss nll_loss nll_loss2d
nll_loss_nd poisson_nll_loss smooth_l1_loss soft_margin_loss triplet_margin_loss upsample_nearest1d
_upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d
_upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa
upsample_trilinear3d upsample_bicubic2d _upsample_bicubic2d_aa
"""
_IN_FP32 = frozenset(
    function
    for name in _NAMES.split()
    for place in (torch, _T, F, torch._C._nn, torch.linalg)
    if (function := getattr(place, name, None)) is not None
)
