# SPDX-License-Identifier: Apache-2.0
"""Real-time scheduling of the thread that slurmctld waits for (sched(7), SCHED_RR).

On a host whose cores are all in use, a nice value only says who gets more of them. A thread that
wakes up may still wait for the next tick, 4 ms with HZ=250, and slurmctld waits with it. One under
SCHED_RR runs at once.

A thread of its own kind must not keep a core from slurmctld: one that has computed for LIMIT_S
without a pause gets SIGXCPU (RLIMIT_RTTIME), and goes on as an ordinary one for AGAIN_S. What it
starts, threads and programs, is ordinary from the first (SCHED_RESET_ON_FORK).
"""

import asyncio
import os
import resource
import signal

import structlog

LIMIT_S = 0.2
AGAIN_S = 60.0

log = structlog.get_logger()


class Realtime:
    """For the thread of ``loop``, which must be the process's main thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._told = self._begun = self._ended = False

    def begin(self) -> bool:
        """Go first from now on; False where the kernel does not let us, which is no fault: it takes
        LimitRTPRIO=1 (systemd) or CAP_SYS_NICE."""
        if self._ended:
            return False
        try:
            signal.signal(signal.SIGXCPU, self._enough)  # before the limit: it would end us
            _, most = resource.getrlimit(resource.RLIMIT_RTTIME)
            # The kernel adds a second to it each time that it sends the signal.
            resource.setrlimit(resource.RLIMIT_RTTIME, (int(LIMIT_S * 1e6), most))
            first = os.SCHED_RR | os.SCHED_RESET_ON_FORK
            os.sched_setscheduler(0, first, os.sched_param(1))
        except (OSError, ValueError):
            return False
        self._begun = True
        return True

    def end(self) -> None:
        """Be an ordinary one again, for good: the loop is about to close."""
        self._ended = True
        if self._begun:
            signal.signal(signal.SIGXCPU, signal.SIG_IGN)
            _ordinary()

    def _enough(self, *_: object) -> None:
        """In the middle of whatever took so long, so only what is safe there."""
        _ordinary()
        self._loop.call_soon_threadsafe(self._later)

    def _later(self) -> None:
        if not self._told:  # once: on a large cluster a round may take as long each time
            self._told = True
            log.info("realtime", result=f"not for {AGAIN_S:g} s: {LIMIT_S:g} s without a pause")
        self._loop.call_later(AGAIN_S, self.begin)


def _ordinary() -> None:
    # Without CAP_SYS_NICE nobody may take back the flag that resets what is started.
    os.sched_setscheduler(0, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))
