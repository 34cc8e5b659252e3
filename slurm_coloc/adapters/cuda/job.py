# SPDX-License-Identifier: Apache-2.0
"""The tiny CUDA job of `coloc calibrate`: a program of its own, run by any Python from 3.8 on.

It stands alone, for the interpreter that has torch is the user's and need not have slurm-coloc.
After each stage it prints one line of JSON and waits for a line, so that whoever started it can
look at the GPU meanwhile:

- context: CUDA's context alone, by libcuda; no torch needed.
- libraries: cuBLAS and cuDNN loaded, a small step of a convolution network done.
- convolutions: bytes that single convolutions take beside their tensors.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any, NoReturn

MIB = 2**20
BATCH = 32
# channels in, out, side, kernel, stride, groups: of VGG, ResNet and ResNeXt
CONVOLUTIONS = (
    (3, 64, 224, 7, 2, 1),
    (64, 64, 112, 3, 1, 1),
    (64, 64, 56, 3, 1, 1),
    (128, 128, 56, 3, 1, 1),
    (128, 128, 28, 3, 1, 1),
    (256, 256, 28, 3, 1, 1),
    (256, 256, 14, 3, 1, 1),
    (512, 512, 7, 3, 1, 1),
    (48, 64, 27, 5, 1, 1),
    (128, 128, 56, 3, 1, 32),
    (256, 256, 28, 3, 1, 32),
    (512, 512, 14, 3, 1, 32),
)


def say(**told: Any) -> None:
    """One stage is done; goes on when it is told to."""
    print(json.dumps(told), flush=True)
    if not sys.stdin.readline():
        sys.exit(0)


class Driver:
    """CUDA's own interface, as much of it as a context takes."""

    def __init__(self) -> None:
        self.lib = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function; ends the job with CUDA's words where it fails."""
        code = getattr(self.lib, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self.lib.cuGetErrorString(code, ctypes.byref(text))
            words = (text.value or b"").decode("utf-8", "replace")
            fail(f"{name}: {words or code}")

    def number(self, kind: Any, name: str, *arguments: Any) -> Any:
        """What a function writes to its first argument."""
        value = kind()
        self.call(name, ctypes.byref(value), *arguments)
        return value


def fail(why: str) -> NoReturn:
    """End the job with one line for people."""
    print(json.dumps({"error": why}), flush=True)
    sys.exit(1)


def context() -> Driver:
    """The primary context of the first visible device, the one that torch takes too."""
    try:
        driver = Driver()
    except OSError as err:
        fail(f"CUDA's driver library cannot be loaded: {err}")
    device = driver.number(ctypes.c_int, "cuDeviceGet", 0)
    made = driver.number(ctypes.c_void_p, "cuDevicePrimaryCtxRetain", device)
    driver.call("cuCtxSetCurrent", made)
    total = driver.number(ctypes.c_size_t, "cuDeviceTotalMem_v2", device).value
    version = driver.number(ctypes.c_int, "cuDriverGetVersion").value
    say(
        stage="context",
        total_mib=total // MIB,
        cuda=f"{version // 1000}.{version % 1000 // 10}",
    )
    return driver


def blas(torch: Any, memory: Memory, device: str) -> int:
    """Bytes that the first product of matrices takes for ever: the workspace of cuBLAS' handle."""
    one = torch.zeros(64, 64, device=device)
    before = memory.start()
    found = torch.mm(one, one)
    return max(0, memory.start() - before - size(found))


def libraries(torch: Any, device: str) -> None:
    """A step of a small network loads what a training loads."""
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, padding=1),
        torch.nn.BatchNorm2d(16),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 16, 3, padding=1, groups=4),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(16, 10),
    ).to(device)
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(2):
        found = net(torch.zeros(4, 3, 32, 32, device=device))
        loss = torch.nn.functional.cross_entropy(
            found, torch.zeros(4, dtype=torch.long, device=device)
        )
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    loss.item()


def one(torch: Any, memory: Memory, device: str, shape: tuple[int, ...]) -> list[int]:
    """Bytes of input and output, and beside them of forward, data and weight gradient."""
    inside, outside, side, kernel, stride, groups = shape
    x = torch.zeros(BATCH, inside, side, side, device=device)
    weight = torch.zeros(outside, inside // groups, kernel, kernel, device=device)
    pad, ones = [kernel // 2] * 2, [1, 1]
    forward = (x, weight, None, [stride] * 2, pad, ones, False, [0, 0], groups)
    y = torch.ops.aten.convolution(*forward)
    backward = (y, x, weight, None, *forward[3:])
    took = []
    for work in range(3):
        for _ in range(2):  # the first run may load code
            before = memory.start()
            if work == 0:
                kept = torch.ops.aten.convolution(*forward)
            else:
                mask = [work == 1, work == 2, False]
                kept = torch.ops.aten.convolution_backward(*backward, mask)[work - 1]
            beside = memory.peak() - before - size(kept)
            del kept
        took.append(max(0, beside))
    return [size(x) + size(y), groups, *took]


def size(tensor: Any) -> int:
    """Bytes as the allocator rounds them."""
    return -int(-tensor.numel() * tensor.element_size() // 512) * 512


class Memory:
    """Bytes that tensors hold on a device, now and at most."""

    def __init__(self, cuda: Any) -> None:
        self.cuda = cuda

    def start(self) -> int:
        """Bytes now; the peak counts from here."""
        self.cuda.synchronize()
        self.cuda.reset_peak_memory_stats()
        return int(self.cuda.memory_allocated())

    def peak(self) -> int:
        """The most since then."""
        self.cuda.synchronize()
        return int(self.cuda.max_memory_allocated())


def main() -> None:
    """All stages; those of torch are left out where it is not there."""
    driver = context()
    try:
        import torch
    except ImportError as err:
        say(stage="libraries", missing=f"torch: {err}")
        return
    if not torch.cuda.is_available():
        say(stage="libraries", missing=f"torch {torch.__version__} sees no GPU")
        return
    memory = Memory(torch.cuda)
    workspace = blas(torch, memory, "cuda")
    libraries(torch, "cuda")
    cudnn = torch.backends.cudnn.version()
    versions = {
        "torch": str(torch.__version__),
        "cuda": str(torch.version.cuda or ""),
        "cudnn": str(cudnn or ""),
    }
    reserved = torch.cuda.memory_reserved() // MIB
    say(stage="libraries", reserved_mib=reserved, blas=workspace, **versions)
    found = [one(torch, memory, "cuda", shape) for shape in CONVOLUTIONS]
    say(
        stage="convolutions",
        reserved_mib=torch.cuda.memory_reserved() // MIB,
        convolutions=found,
    )
    del driver  # the context lives to here


if __name__ == "__main__":
    main()
