# SPDX-License-Identifier: Apache-2.0
"""Processes by pid and start time, which tells when the kernel gave a pid to another process."""

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from slurm_coloc.core.gpu.telemetry import whose

PROC = Path("/proc")


class Process(NamedTuple):
    """``started``: clock ticks since boot, field 22 of /proc/PID/stat."""

    pid: int
    started: int


def leave_caller() -> None:
    """In a child that goes on behind a hook: slurmd ends the hook's process group, and waits for
    whoever holds the hook's output open."""
    os.setsid()
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGPIPE, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)


def started(pid: int) -> int | None:
    """When a process began; None where it is gone or a zombie."""
    try:
        text = (PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if text[0] in (b"Z", b"X") else int(text[19])


def alive(process: Process) -> bool:
    """Whether this process still runs."""
    return started(process.pid) == process.started


def of_daemon(pipe: Path, leader: Process | None) -> list[Process]:
    """MPS programs of one daemon: of the session that ``leader`` began, also after its own death (a
    session keeps its number from being given away), and those whose environment names this pipe
    directory, which root may not read in every container."""
    wanted = f"CUDA_MPS_PIPE_DIRECTORY={pipe}".encode()
    found = []
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            # A user's own program of such a name, with our variables, is ended, too.
            if not whose.is_named((entry / "comm").read_text(errors="replace").strip(), whose.MPS):
                continue
            began = started(int(entry.name))
            if began is None:
                continue
            mine = leader is not None and began >= leader.started
            if (mine and leader is not None and _session(entry) == leader.pid) or wanted in (
                entry / "environ"
            ).read_bytes().split(b"\0"):
                found.append(Process(int(entry.name), began))
    return found


def _session(entry: Path) -> int:
    return int((entry / "stat").read_bytes().rpartition(b")")[2].split()[3])


def end(process: Process, patience_s: float) -> bool:
    """SIGTERM, after ``patience_s`` SIGKILL; whether it is gone. By a descriptor of the process, so
    that a number that is given away meanwhile is not hit."""
    try:
        fd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return True
    try:
        if not alive(process):
            return True
        for number, wait_s in ((signal.SIGTERM, patience_s), (signal.SIGKILL, 1.0)):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, number)
            if gone(fd, wait_s):
                return True
        return not alive(process)
    finally:
        os.close(fd)


def end_all(several: Iterable[Process], patience_s: float) -> list[Process]:
    """As ``end``, of several at once; those that stay. Each is hit by its own descriptor."""
    open_: dict[int, Process] = {}
    try:
        for one in several:
            with contextlib.suppress(ProcessLookupError):
                fd = os.pidfd_open(one.pid)
                open_[fd] = one
                if not alive(one):
                    os.close(fd)
                    del open_[fd]
        for number, wait_s in ((signal.SIGTERM, patience_s), (signal.SIGKILL, 1.0)):
            for fd in open_:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(fd, number)
            end_s = time.monotonic() + wait_s
            for fd in list(open_):
                if gone(fd, end_s - time.monotonic()):
                    os.close(fd)
                    del open_[fd]
        return [one for one in open_.values() if alive(one)]
    finally:
        for fd in open_:
            os.close(fd)


def gone(fd: int, wait_s: float) -> bool:
    """Whether the process of a pidfd ends within ``wait_s``."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(max(0, int(wait_s * 1000))))


def wait(process: Process, wait_s: float) -> bool:
    """Whether it is gone within ``wait_s`` by itself."""
    try:
        fd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return True
    try:
        return not alive(process) or gone(fd, wait_s)
    finally:
        os.close(fd)
