# SPDX-License-Identifier: Apache-2.0
"""Records every storage that PyTorch code makes and drops, in order.

The code runs under PyTorch's own FakeTensorMode: shapes, autograd and the order of frees are real,
no number is computed. Storages are seen where operators return (TorchDispatchMode) and are freed
when their last reference goes, which is what CUDA's allocator sees too.
"""

from __future__ import annotations

import weakref
from math import prod
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from slurm_coloc.estimate.replay.recording import Event, Scratch, Work
from slurm_coloc.summarize.fake.shapes import DEVICE, shortly

_ATEN = torch.ops.aten


class Recorder(TorchDispatchMode):
    """Events of everything that runs inside: bytes of an allocation, -1 - k for the free of the
    k-th, Scratch where an operator needs memory only while it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []
        self._count = 0
        self._index: dict[int, int] = {}
        self._sums: dict[int, int] = {}

    def index_of(self, tensor: torch.Tensor) -> int | None:
        """The number of the allocation that holds ``tensor``; None if it was made outside."""
        return self._index.get(tensor.untyped_storage()._cdata)

    def forget(self, tensor: torch.Tensor) -> None:
        """A storage that was there before is no allocation of this recording."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._index:
            self._index[key] = -1
            # Its address may be another's when it is gone.
            weakref.finalize(storage, self._index.pop, key, None).atexit = False

    def taken(self) -> tuple[list[Event], dict[int, int]]:
        """The events so far as CUDA has them, and the new number of each allocation.

        Where two gradients of one tensor meet, autograd adds the second to the first in place,
        unless somebody else holds the first. It never does so with fake tensors
        (torch/csrc/autograd/input_buffer.cpp), so a sum whose first part is freed at once is put
        back into the first part's place.
        """
        events: list[Event] = []
        number: dict[int, int] = {}
        count = made = 0
        skip = -1
        for position, event in enumerate(self.events):
            if position == skip:
                continue
            if not isinstance(event, int):
                events.append(event)
            elif event < 0:
                events.append(-1 - number[-1 - event])
            else:
                first = self._sums.get(made)
                if first is not None and self.events[position + 1 : position + 2] == [-1 - first]:
                    number[made] = number[first]
                    skip = position + 1
                else:
                    number[made] = count
                    count += 1
                    events.append(event)
                made += 1
        return events, number

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and the switch costs more than most operators

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is DEVICE and type(args[0]) is FakeTensor:
            return args[0].fake_device
        result = shortly(func, args, kwargs)
        if func is _ATEN.convolution.default:
            self._new(result)
            self._scratch(Work.FORWARD, args[0], args[1], result, args[8])
        elif func is _ATEN.convolution_backward.default:
            gradient, given, weight = args[0], args[1], args[2]
            for part, work in zip(result, (Work.DATA, Work.WEIGHT, None), strict=True):
                if part is None:
                    continue
                self._new(part)
                if work is not None:
                    self._scratch(work, given, weight, gradient, args[9])
        else:
            if func is _ATEN.add.Tensor and torch._C._current_graph_task_id() >= 0:
                first = self.index_of(args[0])
                if first is not None and first >= 0:
                    self._sums[self._count] = first
            if isinstance(result, torch.Tensor):
                self._new(result)
            elif isinstance(result, (tuple, list, dict)):
                for leaf in tree_leaves(result):
                    if isinstance(leaf, torch.Tensor):
                        self._new(leaf)
        return result

    def _new(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._index:
            return
        index = self._count
        self._count += 1
        self._index[key] = index
        self.events.append(storage.nbytes())
        weakref.finalize(storage, self._gone, key, index).atexit = False

    def _gone(self, key: int, index: int) -> None:
        if self._index.get(key) == index:
            del self._index[key]
            self.events.append(-1 - index)

    def _scratch(
        self, work: Work, given: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, groups: int
    ) -> None:
        read, written, held = (x.numel() * x.element_size() for x in (given, out, weight))
        kernel, channels = prod(weight.shape[2:]), weight.shape[0]
        self.events.append(Scratch(work, read, written, held, kernel, groups, channels))
