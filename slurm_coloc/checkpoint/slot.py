# SPDX-License-Identifier: Apache-2.0
"""When a job's time slot ends: by its own clock, or by the signal that colocd sends.

Either is enough: the clock works while colocd is away; the signal reaches programs that do not
watch the clock.
"""

import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

NAME = "COLOC_SLOT"  # in the job's environment: "seconds,seconds before the end,signal"
OLDEST_S = 400 * 86400.0  # a start before that is no start: SLURM_JOB_START_TIME was not one


def _read(text: str) -> tuple[float, float, str] | None:
    """Length and warning in seconds, and the signal's name; None where the text says nothing."""
    parts = text.split(",")
    try:
        length_s, warn_s = float(parts[0]), float(parts[1])
    except (IndexError, ValueError):
        return None
    if not 0 <= warn_s < length_s:
        return None
    return length_s, warn_s, parts[2] if len(parts) > 2 else ""


def _process_start_s() -> float:
    """When this process began, Unix seconds (proc(5): field 22 of stat, in ticks since boot)."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        lived_s = time.clock_gettime(time.CLOCK_BOOTTIME) - float(fields[19]) / os.sysconf(
            "SC_CLK_TCK"
        )
    except (OSError, IndexError, ValueError):
        return time.time()
    return time.time() - max(0.0, lived_s)


def _start_s(environ: Mapping[str, str]) -> float:
    """When this run of the job began; where Slurm does not tell (22.05), when this process did."""
    start = environ.get("SLURM_JOB_START_TIME", "")
    now = time.time()
    if start.isdigit() and now - OLDEST_S < float(start) <= now + 60:
        return float(start)
    return _process_start_s()


class Slot:
    """The slot of this run of the job.

    As a context it listens for the signal; a handler that was there before is called too, and is
    put back at the end. Only the main thread of a program can listen; elsewhere the clock is all.
    ``also``: names of signals ("USR1") that mean the same, for a program's own ``sbatch --signal``.
    """

    def __init__(
        self, environ: Mapping[str, str] | None = None, also: tuple[str, ...] = ()
    ) -> None:
        environ = os.environ if environ is None else environ
        found = _read(environ.get(NAME, ""))
        own = found[2] if found else ""
        self.length_s = found[0] if found else None
        self._deadline_s = None if found is None else _start_s(environ) + found[0] - found[1]
        self._names = tuple(dict.fromkeys(name for name in (own, *also) if name))
        self._signalled = False
        self._before: dict[int, Any] = {}

    @property
    def given(self) -> bool:
        """Whether the job runs in slots."""
        return self._deadline_s is not None

    @property
    def due(self) -> bool:
        """Whether it is time to save and leave."""
        return self._signalled or (self._deadline_s is not None and time.time() >= self._deadline_s)

    @property
    def left_s(self) -> float | None:
        """Seconds until it is time to save; None: the job has no slot."""
        return None if self._deadline_s is None else max(0.0, self._deadline_s - time.time())

    def end(self) -> None:
        """It is time now, whatever the clock says."""
        self._signalled = True

    def _heard(self, number: int, frame: FrameType | None) -> None:
        self._signalled = True
        before = self._before.get(number)
        if callable(before):
            before(number, frame)

    def __enter__(self) -> "Slot":
        if threading.current_thread() is threading.main_thread():
            for name in self._names:
                number = getattr(signal, f"SIG{name.upper().removeprefix('SIG')}", None)
                if number is not None and number not in self._before:
                    self._before[number] = signal.getsignal(number)
                    signal.signal(number, self._heard)
        return self

    def __exit__(self, *error: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_DFL if before is None else before)
        self._before.clear()
