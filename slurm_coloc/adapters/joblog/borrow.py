# SPDX-License-Identifier: Apache-2.0
"""A child that borrows a job's descriptor and does one thing with it."""

import ctypes
import os
import select
import signal
import stat
import time
from collections.abc import Callable, Collection
from typing import NoReturn

NO_ANSWER = "no answer in time"  # a reason
MOST_FILES = 65536  # no descriptor of the agent is higher
PIDFD_GETFD = 438  # the same number on every architecture


def in_child(work: Callable[[], bytes], most: int, deadline_s: float) -> bytes | None:
    """What ``work`` returns in a child of this process: at most ``most`` bytes; None where it does
    not in time. An OSError of it is its words in small letters, any other exception its name."""
    end_s = time.monotonic() + deadline_s
    readable, writable = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        _child(writable, work, most)
    os.close(writable)
    try:
        ready, _, _ = select.select([readable], [], [], deadline_s)
        return os.read(readable, most) if ready else None
    finally:
        os.close(readable)
        _reap(pid, end_s)


def _child(writable: int, work: Callable[[], bytes], most: int) -> NoReturn:
    """The child's whole life."""
    said = b""
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        os.chdir("/")
        os.closerange(3, writable)
        os.closerange(writable + 1, MOST_FILES)
        said = work()
    except OSError as err:
        said = (err.strerror or "it cannot be used").lower().encode()
    except BaseException as err:
        said = type(err).__name__.encode()
    finally:
        try:
            os.write(writable, said[:most])
        finally:
            os._exit(0)


def borrowed(pid: int, inodes: Collection[int]) -> int:
    """A copy of the process' standard error or output, where it is one of these logs; else -1.
    Raises OSError where no descriptor can be borrowed at all."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return -1
    try:
        for number in (2, 1):
            fd = int(libc.syscall(PIDFD_GETFD, pidfd, number, 0))
            if fd < 0:
                if ctypes.get_errno() in (1, 38):  # EPERM, ENOSYS
                    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
                continue
            status = os.fstat(fd)
            if stat.S_ISREG(status.st_mode) and status.st_ino in inodes:
                return fd
            os.close(fd)
    finally:
        os.close(pidfd)
    return -1


def _reap(pid: int, end_s: float) -> None:
    """End the child; one that the kernel holds (a dead file server) is not waited for."""
    fd = os.pidfd_open(pid)
    try:
        for wait_s in (max(0.0, end_s - time.monotonic()), 0.2):
            if select.select([fd], [], [], wait_s)[0]:
                os.waitpid(pid, 0)
                return
            os.kill(pid, signal.SIGKILL)
    finally:
        os.close(fd)
