# SPDX-License-Identifier: Apache-2.0
"""Code that asks for CUDA runs on the CPU: devices are mapped where functions take them."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

_CPU = torch.device("cpu")
_MAPPED = ("cuda", "xpu", "mps")
_MOVES = frozenset({torch.Tensor.cuda, torch.Tensor.pin_memory, torch.Tensor.to})


def mapped(device: Any) -> Any:
    """``device`` itself, or the CPU in place of a GPU. Numbers are GPUs, too."""
    if isinstance(device, int):
        return device if isinstance(device, bool) else _CPU
    name = device.type if isinstance(device, torch.device) else device
    return _CPU if isinstance(name, str) and name.split(":")[0] in _MAPPED else device


class OnCpu(TorchFunctionMode):
    """Maps the devices that functions of torch are given."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if kwargs and "device" in kwargs:
            kwargs = {**kwargs, "device": mapped(kwargs["device"])}
        if func in _MOVES:
            if func is not torch.Tensor.to:
                return args[0]
            if len(args) > 1 and not isinstance(args[1], torch.Tensor):
                args = (args[0], mapped(args[1]), *args[2:])
        return func(*args, **(kwargs or {}))


class _Nothing:
    """An event, a stream or whatever else of CUDA a script makes: takes every call."""

    def __init__(self, *given: Any, **named: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return lambda *given, **named: 0.0 if "time" in name else None

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *error: object) -> None: ...


_ANSWERS: dict[str, Any] = {
    "is_available": True,
    "device_count": 1,
    "current_device": 0,
    "is_initialized": True,
    "is_bf16_supported": True,
    "get_device_name": "slurm-coloc: no GPU",
    "get_device_capability": (8, 0),
    "memory_allocated": 0,
    "max_memory_allocated": 0,
    "memory_reserved": 0,
    "max_memory_reserved": 0,
    "mem_get_info": (2**36, 2**36),
}
_SILENT = """set_device manual_seed manual_seed_all seed seed_all synchronize empty_cache init
reset_peak_memory_stats reset_max_memory_allocated set_per_process_memory_fraction ipc_collect
"""


def _answer(value: Any) -> Any:
    return lambda *given, **named: value


@contextmanager
def cuda_there() -> Iterator[None]:
    """torch.cuda answers as on a host with one GPU, so that a script runs the code that it runs
    there. CUDA's autocast is the CPU's, see autocast; gradient scalers do nothing."""
    with ExitStack() as stack:
        for name, value in _ANSWERS.items():
            _patch(stack, torch.cuda, name, _answer(value))
        for name in _SILENT.split():
            _patch(stack, torch.cuda, name, _answer(None))
        for name in ("Event", "Stream", "stream", "device"):
            _patch(stack, torch.cuda, name, _Nothing)
        _patch(stack, torch.cuda, "get_device_properties", _properties)
        _patch(stack, torch.nn.Module, "cuda", lambda self, device=None: self)
        _patch(stack, torch.nn.Module, "to", _module_to(torch.nn.Module.to))
        _patch_autocast(stack)
        _patch(stack, torch.amp.grad_scaler, "amp_definitely_not_available", _answer(True))
        stack.enter_context(OnCpu())
        yield


def _module_to(to: Any) -> Any:
    def changed(self: Any, *given: Any, **named: Any) -> Any:
        if given:
            given = (mapped(given[0]), *given[1:])
        if "device" in named:
            named["device"] = mapped(named["device"])
        return to(self, *given, **named)

    return changed


def _patch(stack: ExitStack, place: Any, name: str, value: Any) -> None:
    if hasattr(place, name):
        stack.enter_context(mock.patch.object(place, name, value))


def _properties(*given: Any) -> Any:
    return types.SimpleNamespace(
        name="slurm-coloc: no GPU", total_memory=2**36, major=8, minor=0, multi_processor_count=108
    )


#: dtypes of the autocasts that were entered, the last one last
ENTERED: list[torch.dtype] = []


def _patch_autocast(stack: ExitStack) -> None:
    begin = torch.amp.autocast_mode.autocast.__init__

    def init(self: Any, device_type: str, dtype: Any = None, *given: Any, **named: Any) -> None:
        on = given[0] if given else named.get("enabled", True)
        if device_type.split(":")[0] in _MAPPED:
            device_type, dtype = "cpu", torch.float16  # of two bytes, as bfloat16
        if on:
            ENTERED.append(dtype or torch.bfloat16)
        with contextlib.suppress(AttributeError):
            begin(self, device_type, dtype, *given, **named)

    stack.enter_context(mock.patch.object(torch.amp.autocast_mode.autocast, "__init__", init))
    old = getattr(torch.cuda.amp, "autocast", None)
    if old is not None:
        stack.enter_context(mock.patch.object(torch.cuda.amp, "autocast", _old_autocast))


def _old_autocast(enabled: bool = True, dtype: Any = None, cache_enabled: bool = True) -> Any:
    return torch.amp.autocast("cuda", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)
