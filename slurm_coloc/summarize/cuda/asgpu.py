# SPDX-License-Identifier: Apache-2.0
"""Operators that PyTorch runs in another way on CUDA than on the CPU, as CUDA runs them.

Dropout is one kernel there that keeps a mask of one byte an element, attention a fused kernel that
keeps no scores, and RMSNorm one that keeps its input. On fake CPU tensors the CPU's own choices
would be recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from slurm_coloc.summarize.cuda.autocast import HALF, enabled, in_fp32


class AsGpu(TorchFunctionMode):
    """Takes the place of functions while model code runs: also of those inside others of
    torch.nn.functional, as in nn.MultiheadAttention, see step.Session. Where the code switches
    autocast on, it is CUDA's: one mode for both, for each costs every function its time."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.Tensor.backward:
            with self:  # which is off while a function runs, and blocks may run again in this one
                return torch.autograd.backward(*_in_order(*args, **kwargs))
        own = _OWN.get(func)
        run = func if own is None else partial(own, func)
        if args and enabled():
            return in_fp32(func, run, args, kwargs)
        return run(*args, **kwargs)


def _in_order(
    of: torch.Tensor,
    gradient: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> tuple[Any, ...]:
    """Arguments of torch.autograd.backward, from those of Tensor.backward."""
    return of, gradient, retain_graph, create_graph, None, inputs


def _dropout(
    func: Any, x: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> torch.Tensor:
    if not training or p in (0.0, 1.0) or inplace or not x.requires_grad:
        return func(x, p, training, inplace)
    return torch.native_dropout(x, p, True)[0]


def _of_builtin(func: Any, x: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    if not train or p in (0.0, 1.0) or not x.requires_grad:
        return func(x, p, train)
    return torch.native_dropout(x, p, True)[0]


def _attention(
    func: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    if query.dim() != 4 or query.shape[-1] != value.shape[-1]:
        return func(query, key, value, attn_mask, dropout_p, is_causal, scale=scale)
    if enabled():
        query, key, value = (x.to(HALF) for x in (query, key, value))
    if enable_gqa and key.shape[1] != query.shape[1]:
        times = query.shape[1] // key.shape[1]
        key, value = (x.repeat_interleave(times, 1) for x in (key, value))
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype)
    if attn_mask is not None:
        attn_mask = attn_mask.expand(*query.shape[:3], key.shape[2])
    fused = torch.ops.aten._scaled_dot_product_efficient_attention
    saves = any(x.requires_grad for x in (query, key, value))
    return fused(query, key, value, attn_mask, saves, dropout_p, is_causal, scale=scale)[0]


class _FusedRmsNorm(torch.autograd.Function):
    """One kernel there, that keeps its input and one number a row; the CPU has a chain of
    functions, which keep three tensors of the input's size."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor | None, rows: int) -> torch.Tensor:
        root = x.new_empty((*x.shape[:rows], *[1] * (x.dim() - rows)), dtype=torch.float32)
        ctx.save_for_backward(x, weight, root)
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, *of: Any) -> Any:
        x, weight, _ = ctx.saved_tensors
        asked = weight is not None and weight.requires_grad
        return torch.empty_like(x), torch.empty_like(weight) if asked else None, None


def _rms_norm(
    func: Any,
    x: torch.Tensor,
    normalized_shape: Any,
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> torch.Tensor:
    # aten/src/ATen/native/layer_norm.cpp: not where the weight has another precision.
    other = weight is not None and weight.dtype is not x.dtype
    if other or not hasattr(torch.ops.aten, "_fused_rms_norm"):
        return func(x, normalized_shape, weight, eps)
    made: torch.Tensor = _FusedRmsNorm.apply(x, weight, x.dim() - len(normalized_shape))
    return made


_OWN: dict[Any, Callable[..., Any]] = {
    F.dropout: _dropout,
    torch.dropout: _of_builtin,
    F.scaled_dot_product_attention: _attention,
    **dict.fromkeys((getattr(F, "rms_norm", None), getattr(torch, "rms_norm", None)), _rms_norm),
}
