# SPDX-License-Identifier: Apache-2.0
"""Adds a line to the log of a running job.

The line goes where the job's next line would have gone, in whatever way Slurm opened the file.
"""

import os
from collections.abc import Callable, Collection, Sequence

from slurm_coloc.adapters.joblog.borrow import NO_ANSWER, borrowed, in_child

MOST = 400  # bytes of a line
SAID = 80  # bytes of a reason
WRITTEN = b"written"


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

    def write() -> bytes:
        fd = next((fd for pid in pids if (fd := borrowed(pid, known)) >= 0), -1)
        if fd < 0:
            return b"none of its processes has its log open"
        become()
        return WRITTEN if os.write(fd, data) == len(data) else b"it took a part of the line"

    said = in_child(write, SAID, deadline_s)
    if said is None:
        return NO_ANSWER
    return "" if said == WRITTEN else said.decode("utf-8", "replace") or "it could not be opened"
