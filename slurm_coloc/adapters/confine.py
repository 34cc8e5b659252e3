# SPDX-License-Identifier: Apache-2.0
"""Limits that a process puts on itself before it reads what a user wrote."""

import contextlib
import ctypes
import math
import os
import resource
import signal
from pathlib import Path
from types import FrameType

# linux/prctl.h
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
#: files that may be open; a module that was not loaded yet is read from one
OPEN_FILES = 16


def _prctl(option: int, value: int) -> None:
    """Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def no_new_privileges() -> None:
    """For this process and all that it starts: no set-user-ID program gives them rights."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def end_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends. Raises ProcessLookupError where
    ``parent`` has ended already."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise ProcessLookupError(parent)


def first_to_be_killed() -> None:
    """Where memory runs out, in this process and all that it starts (man proc)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def address_space() -> int:
    """Bytes that this process has mapped, which is what RLIMIT_AS counts."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[0]
    return int(pages) * resource.getpagesize()


def confine(cpu_s: float, memory: int) -> None:
    """From here on this process may use ``cpu_s`` of processor time and ``memory`` bytes of address
    space, write no file and start no process (root may). The kernel kills it by SIGPROF when its
    time is over; memory that it does not get is a MemoryError."""
    for what, limit in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, math.ceil(cpu_s) + 1),  # whole seconds: behind the timer below
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
    ):
        resource.setrlimit(what, (limit, limit))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, cpu_s)


def yield_after(cpu_s: float, nice: int) -> None:
    """Lower this process' priority once it has used ``cpu_s`` of processor time, so that what is
    quick is not held up on a busy machine and what is slow holds nobody up."""

    def lower(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(OSError):
            os.nice(nice)

    signal.signal(signal.SIGVTALRM, lower)
    signal.setitimer(signal.ITIMER_VIRTUAL, cpu_s)
