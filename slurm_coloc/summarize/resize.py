# SPDX-License-Identifier: Apache-2.0
"""Batches made larger and smaller: every tensor and list whose first dimension is the batch's."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_leaves


def leading(batch: Any) -> int | None:
    """Samples of a batch: the first dimension of its first tensor that has one."""
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    found = (x for x in tree_leaves(batch) if isinstance(x, torch.Tensor) and x.dim())
    first = next(found, None)
    return None if first is None else int(first.shape[0])


def resized(batch: Any, size: int, wanted: int) -> Any:
    """``batch`` of ``size`` samples as one of ``wanted``; its samples are repeated."""
    if size == wanted:
        return batch
    if isinstance(batch, torch.Tensor):
        if not batch.dim() or batch.shape[0] != size:
            return batch
        return batch[torch.arange(wanted, device=batch.device) % size]
    if isinstance(batch, Mapping):
        changed = {key: resized(value, size, wanted) for key, value in batch.items()}
        if isinstance(batch, dict) and type(batch) is dict:
            return changed
        same = copy.copy(batch)  # BatchEncoding and the like
        try:
            same.update(changed)  # type: ignore[attr-defined]
        except AttributeError:
            return changed
        return same
    if isinstance(batch, tuple):
        parts = [resized(part, size, wanted) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else tuple(parts)
    if isinstance(batch, list):
        parts = [resized(part, size, wanted) for part in batch]
        holds = any(isinstance(x, torch.Tensor) and x.dim() and x.shape[0] == size for x in parts)
        if len(batch) == size and not holds and parts == batch:
            return [batch[at % size] for at in range(wanted)]
        return parts
    return batch
