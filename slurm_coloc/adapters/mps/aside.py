# SPDX-License-Identifier: Apache-2.0
"""Work that a hook starts and need not wait for: a child process finishes it."""

import os
import select
import signal
from collections.abc import Callable

from slurm_coloc.adapters.mps import processes
from slurm_coloc.errors import GpuError

_MOST = 400  # bytes of a reason


def aside(work: Callable[[], None], patience_s: float) -> bool:
    """Run ``work`` in a child process; whether it finished within ``patience_s``, else the child
    goes on. A file that the caller has locked by flock stays locked until the child has ended, too.
    Raises GpuError where ``work`` failed in that time."""
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
        processes.leave_caller()
        work()
    except BaseException as err:
        said = getattr(err, "message", "") or f"{type(err).__name__}: {err}"
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        try:
            os.write(writable, said.encode("utf-8", "replace")[:_MOST])
        finally:
            os._exit(1)
    os._exit(0)
