# SPDX-License-Identifier: Apache-2.0
"""Reads the begin and the end of a running job's log. Of what is there only numbers come back.

The child reads a bounded part of the file, finds the counters in it (core/time/progress/reading)
and is to be limited in processor time and memory, because the text is its owner's.
"""

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from slurm_coloc.adapters.joblog.borrow import NO_ANSWER, borrowed, in_child
from slurm_coloc.core.time.progress.patterns import MOST
from slurm_coloc.core.time.progress.reading import FLAGS, Said, merged, read

HEAD, TAIL = 16 * 1024, 64 * 1024  # bytes
COMMAND = 4096  # bytes of a command line
PROCESSES = 64
ANSWER = 1024  # bytes


def read_numbers(
    confine: Callable[[], None],
    pids: Sequence[int],
    starts: Mapping[int, int],
    deadline_s: float,
) -> Said | str:
    """What the logs of a job say, or why that is not known. ``pids``: its processes; ``starts``:
    the inode of each log, and its length when the job began to write to it. ``confine``: takes the
    owner's rights for good, and limits what the child may use."""
    known = {inode: start for inode, start in starts.items() if inode}
    if not known:
        return "its log is no regular file"

    def work() -> bytes:
        logs, command = _logs(pids[:PROCESSES], known), _commands(pids[:PROCESSES])
        if not logs:
            return b"none of its processes has its log open"
        confine()
        found = merged([_said(fd, known[inode], command) for inode, fd in logs.items()])
        return json.dumps(found._asdict()).encode()

    said = in_child(work, ANSWER, deadline_s)
    if said is None:
        return NO_ANSWER
    if not said.startswith(b"{"):
        return said.decode("utf-8", "replace")[:80] or "the log took too long to read"
    return checked(said)


def checked(answer: bytes) -> Said | str:
    """The child's numbers; the child had its owner's rights, so none is believed unseen."""
    try:
        plain = json.loads(answer)
        return Said(**{name: _number(name, plain[name]) for name in Said._fields})
    except (ValueError, KeyError, TypeError):
        return "no numbers"


def _number(name: str, value: Any) -> Any:
    if name in FLAGS:
        return value is True
    if value is None:
        return None
    number = float(value)
    if not math.isfinite(number) or not 0 <= number <= MOST:
        raise ValueError(name)
    return number


def _logs(pids: Sequence[int], starts: Mapping[int, int]) -> dict[int, int]:
    """A descriptor of each log that one of the processes has open."""
    found: dict[int, int] = {}
    for pid in pids:
        while missing := starts.keys() - found.keys():
            fd = borrowed(pid, missing)
            if fd < 0:
                break
            found[os.fstat(fd).st_ino] = fd
    return found


def _commands(pids: Sequence[int]) -> str:
    """The processes' command lines: how many epochs they were told to take."""
    found = []
    for pid in pids:
        try:
            with Path(f"/proc/{pid}/cmdline").open("rb") as file:
                found.append(file.read(COMMAND).decode("utf-8", "replace"))
        except OSError:
            continue
    return "\n".join(found)


def _said(fd: int, start: int, command: str) -> Said:
    # The job opened it for writing: it is opened again, with its owner's rights.
    file = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    size = os.fstat(file).st_size
    begin = start if start <= size else 0  # it was cut meanwhile
    cut = max(begin, size - TAIL)
    tail = os.pread(file, TAIL, cut)
    head = os.pread(file, min(HEAD, cut - begin), begin)
    return read(head.decode("utf-8", "replace"), tail.decode("utf-8", "replace"), command)
