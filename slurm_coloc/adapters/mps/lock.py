# SPDX-License-Identifier: Apache-2.0
"""Locks between hooks, held by flock(2).

flock asks for no right to write: whoever can open the file to read can hold the lock. So it is
0600, and a file that is not ours is no lock.
"""

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from slurm_coloc.errors import GpuError

_PAUSE_S = 0.005


@contextlib.contextmanager
def locked(path: Path, limit_s: float) -> Iterator[bool]:
    """Whether the lock was taken within ``limit_s``; it is given back at the end. Raises GpuError
    for a file that cannot be a lock, and OSError."""
    fd = _open(path)
    try:
        yield _taken(fd, time.monotonic() + limit_s)
    finally:
        os.close(fd)


def _open(path: Path) -> int:
    # O_NONBLOCK: a FIFO at this place must not hold a hook up.
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    fd = os.open(path, flags, 0o600)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise GpuError(f"{path} is not root's own file and cannot be a lock", "mps")
        if stat.S_IMODE(status.st_mode) != 0o600:
            # Earlier releases made it 0644. The same file: another hook may hold it now.
            os.fchmod(fd, 0o600)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _taken(fd: int, end_s: float) -> bool:
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end_s:
                return False
            time.sleep(_PAUSE_S)
        else:
            return True
