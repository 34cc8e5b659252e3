# SPDX-License-Identifier: Apache-2.0
"""Reads a summary file of a user without ever waiting on it."""

import os
import stat
import sys

from slurm_coloc.errors import SummaryError
from slurm_coloc.estimate.lexing import MAX_BYTES, fail


def read_summary(path: str) -> str:
    """Text of a regular file, or of standard input for ``-``; at most 4 MiB.

    Raises SummaryError not_found, not_regular, unreadable, too_large or binary. O_NONBLOCK keeps a
    FIFO without a writer from blocking the open; it has no effect on regular files.
    """
    if path == "-":
        return _decode(sys.stdin.buffer.read(MAX_BYTES + 1), "standard input")
    if not path or "\x00" in path:
        raise fail("not_found", "no file is named")
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except (FileNotFoundError, NotADirectoryError):
        raise fail("not_found", f"{path}: no such file") from None
    except (OSError, ValueError) as err:
        raise _unreadable(path, err) from None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise fail("not_regular", f"{path}: not a regular file")
        return _decode(_read(handle), path)
    except OSError as err:
        raise _unreadable(path, err) from None
    finally:
        os.close(handle)


def _unreadable(path: str, err: Exception) -> SummaryError:
    text = err.strerror if isinstance(err, OSError) and err.strerror else str(err)
    return fail("unreadable", f"{path}: cannot be read: {text}")


def _read(handle: int) -> bytes:
    parts: list[bytes] = []
    left = MAX_BYTES + 1
    while left > 0 and (part := os.read(handle, min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _decode(data: bytes, name: str) -> str:
    if len(data) > MAX_BYTES:
        raise fail("too_large", f"{name}: more than {MAX_BYTES // 2**20} MiB")
    if b"\x00" in data:
        raise fail("binary", f"{name}: holds NUL bytes, it is not a text")
    return data.decode("utf-8", "replace")
