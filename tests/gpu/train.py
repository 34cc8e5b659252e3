# SPDX-License-Identifier: Apache-2.0
"""A small training for a real GPU, a program of its own: with torch, else by libcuda alone.

usage: train.py --memory-mib M --steps N [--libcuda] [--wait]

Takes M MiB, works N steps, prints a line of JSON. An out-of-memory ends it with exit 1 and CUDA's
or torch's own words. With --wait it says when it is ready and goes on after a line of standard
input, so that several begin together. By libcuda the work is a kernel on a third of the SMs, as of
a small training.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
import time
from typing import Any

MIB = 2**20
#: FMAs in one thread; the result is stored so that no compiler leaves the loop out
PTX = b"""
.version 6.0
.target sm_60
.address_size 64
.visible .entry spin(.param .u64 out, .param .u32 count)
{
    .reg .pred %p<2>; .reg .u32 %r<5>; .reg .f32 %f<3>; .reg .u64 %d<4>;
    ld.param.u64 %d1, [out];
    ld.param.u32 %r1, [count];
    mov.u32 %r2, 0;
    mov.u32 %r3, %tid.x;
    cvt.rn.f32.u32 %f1, %r3;
LOOP:
    fma.rn.f32 %f1, %f1, 0f3F000000, 0f3F800000;
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p1, %r2, %r1;
    @%p1 bra LOOP;
    cvta.to.global.u64 %d2, %d1;
    mul.wide.u32 %d3, %r3, 4;
    add.u64 %d2, %d2, %d3;
    st.global.f32 [%d2], %f1;
    ret;
}
"""
THREADS = 256
SPINS = 200_000
SM_COUNT = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT


def by_torch(memory_mib: int, steps: int, wait: bool) -> None:
    """A small convolution network on made-up pictures."""
    import torch

    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(32, 64, 3, padding=1, stride=2),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(64, 10),
    ).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    pictures = torch.randn(32, 3, 64, 64, device="cuda")
    kinds = torch.zeros(32, dtype=torch.long, device="cuda")
    taken = torch.cuda.memory_reserved() // MIB
    held = torch.empty(max(0, memory_mib - taken), MIB, dtype=torch.uint8, device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(pictures), kinds).backward()
        optimizer.step()

    step()
    torch.cuda.synchronize()
    ready(wait)
    began = time.monotonic()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    told(began, steps, f"torch {torch.__version__}")
    del held


def by_libcuda(memory_mib: int, steps: int, wait: bool) -> None:
    """The same without any package."""
    lib = ctypes.CDLL("libcuda.so.1")

    def call(name: str, *arguments: Any) -> None:
        code = getattr(lib, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            lib.cuGetErrorString(code, ctypes.byref(text))
            words = (text.value or b"").decode("utf-8", "replace")
            sys.exit(f"CUDA error: {name}: {words or code}")

    def made(kind: Any, name: str, *arguments: Any) -> Any:
        value = kind()
        call(name, ctypes.byref(value), *arguments)
        return value

    call("cuInit", 0)
    device = made(ctypes.c_int, "cuDeviceGet", 0)
    call("cuCtxSetCurrent", made(ctypes.c_void_p, "cuDevicePrimaryCtxRetain", device))
    sms = made(ctypes.c_int, "cuDeviceGetAttribute", SM_COUNT, device).value
    for left in range(memory_mib, 0, -512):
        made(ctypes.c_uint64, "cuMemAlloc_v2", ctypes.c_size_t(min(left, 512) * MIB))
    out = made(ctypes.c_uint64, "cuMemAlloc_v2", ctypes.c_size_t(THREADS * 4))
    module = made(ctypes.c_void_p, "cuModuleLoadData", PTX)
    spin = made(ctypes.c_void_p, "cuModuleGetFunction", module, b"spin")
    count = ctypes.c_uint32(SPINS)
    arguments = (ctypes.c_void_p * 2)(
        ctypes.cast(ctypes.byref(out), ctypes.c_void_p),
        ctypes.cast(ctypes.byref(count), ctypes.c_void_p),
    )
    grid = (max(1, sms // 3), 1, 1, THREADS, 1, 1, 0)

    def step() -> None:
        call("cuLaunchKernel", spin, *grid, None, arguments, None)
        call("cuCtxSynchronize")

    step()
    ready(wait)
    began = time.monotonic()
    for _ in range(steps):
        step()
    told(began, steps, "libcuda")


def ready(wait: bool) -> None:
    """All is loaded and held."""
    if wait:
        print(json.dumps({"ready": True}), flush=True)
        sys.stdin.readline()


def told(began: float, steps: int, by: str) -> None:
    """The last line."""
    print(json.dumps({"wall_s": time.monotonic() - began, "steps": steps, "by": by}), flush=True)


def main() -> None:
    """Read the arguments and work."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--memory-mib", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--libcuda", action="store_true")
    parser.add_argument("--wait", action="store_true")
    asked = parser.parse_args()
    (by_libcuda if asked.libcuda else by_torch)(asked.memory_mib, asked.steps, asked.wait)


if __name__ == "__main__":
    main()
