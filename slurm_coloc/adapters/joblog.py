# SPDX-License-Identifier: Apache-2.0
"""Adds a line to the log of a running job, by a descriptor that the job itself has open.

The agent does not see users' homes (its unit hides them), and a log may lie where only the job's
own mounts lead. So no path is opened: of the job's own processes one is taken whose standard output
or error is the job's log, by its inode, and its descriptor is borrowed (pidfd_getfd(2)). The line
goes where the job's next line would have gone, in whatever way Slurm opened the file. A child does
it: with the user's rights by the time it writes, only to a regular file, and in a limited time.
"""

import ctypes
import os
import select
import signal
import stat
import time
from collections.abc import Callable, Collection, Sequence
from typing import NoReturn

PIDFD_GETFD = 438  # the same number on every architecture
MOST = 400  # bytes of a line
SAID = 80  # bytes of a reason


def append(
    become: Callable[[], None],
    pids: Sequence[int],
    inodes: Collection[int],
    line: str,
    deadline_s: float,
) -> str:
    """Write ``line`` to the log that has one of ``inodes`` and that one of the processes ``pids``
    has open as standard error or output. ``become``: takes the owner's rights for good. Returns ""
    or why it could not be written."""
    known = {inode for inode in inodes if inode}
    if not known:
        return "its log is no regular file"
    data = b"\n" + line.encode("utf-8", "replace")[:MOST] + b"\n"
    end_s = time.monotonic() + deadline_s
    readable, writable = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        _child(writable, become, pids, known, data)
    os.close(writable)
    try:
        ready, _, _ = select.select([readable], [], [], deadline_s)
        said = os.read(readable, SAID) if ready else b"no answer in time"
    finally:
        os.close(readable)
        _reap(pid, end_s)
    return "" if said == b"written" else said.decode("utf-8", "replace") or "it could not be opened"


def _child(
    writable: int,
    become: Callable[[], None],
    pids: Sequence[int],
    inodes: set[int],
    data: bytes,
) -> NoReturn:
    """The child's whole life."""
    said = "none of its processes has its log open"
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        os.chdir("/")
        libc = ctypes.CDLL(None, use_errno=True)
        fd = next((fd for pid in pids if (fd := _borrow(libc, pid, inodes)) >= 0), -1)
        if fd >= 0:
            become()
            said = "written" if os.write(fd, data) == len(data) else "it took a part of the line"
    except OSError as err:
        said = (err.strerror or "it cannot be written").lower()
    except BaseException as err:
        said = type(err).__name__
    finally:
        try:
            os.write(writable, said.encode()[:SAID])
        finally:
            os._exit(0)


def _borrow(libc: ctypes.CDLL, pid: int, inodes: set[int]) -> int:
    """A copy of the process' standard error or output, where it is the log; else -1."""
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
