# SPDX-License-Identifier: Apache-2.0
"""Work that a hook begins and need not see the end of: it goes on in a process of its own."""

import os
import select
import signal
from collections.abc import Callable

from slurm_coloc.errors import GpuError

_MOST = 400  # bytes of a reason


def aside(work: Callable[[], None], patience_s: float) -> bool:
    """Have a child do ``work``; whether it was done within ``patience_s``, else it goes on. What
    the caller has locked by flock stays locked until the child, too, has ended, however it does.
    Raises GpuError where ``work`` did in that time."""
    readable, writable = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        _child(writable, work)
    os.close(writable)
    try:
        poll = select.poll()
        poll.register(readable, select.POLLIN)
        if not poll.poll(int(patience_s * 1000)):
            return False
        said = os.read(readable, _MOST)
        os.waitpid(pid, 0)  # it closed the pipe: it ends now
    finally:
        os.close(readable)
    if said:
        raise GpuError(said.decode("utf-8", "replace"), "mps")
    return True


def _child(writable: int, work: Callable[[], None]) -> None:
    """The child's whole life; never returns."""
    try:
        os.setsid()  # slurmd ends the hook's process group
        # slurmd waits for whoever holds the hook's output open: keep none of it.
        null = os.open("/dev/null", os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        for number in (signal.SIGPIPE, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        work()
    except BaseException as err:
        said = getattr(err, "message", "") or f"{type(err).__name__}: {err}"
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        try:
            os.write(writable, said.encode("utf-8", "replace")[:_MOST])
        finally:
            os._exit(1)
    os._exit(0)
