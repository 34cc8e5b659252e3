# SPDX-License-Identifier: Apache-2.0
"""What parents and children by fork share."""

import contextlib
import os
import signal
import time
from pathlib import Path

POLL_S = 0.002
KILLED_S = 0.2


def close_all_but(*needed: int) -> None:
    """Close what the child has of its parent: sockets, locks, output."""
    for fd in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if fd not in needed:
            with contextlib.suppress(OSError):  # that of the listing itself
                os.close(fd)


def reap(pid: int, end_s: float) -> None:
    """End the child at ``end_s`` (monotonic); one that the kernel holds (a dead file server) is not
    waited for."""
    while not os.waitpid(pid, os.WNOHANG)[0]:
        if (now_s := time.monotonic()) >= end_s + KILLED_S:
            return
        if now_s >= end_s:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(POLL_S)
