# SPDX-License-Identifier: Apache-2.0
"""How often an ordinary user may ask the front something, over all of the user's connections: so
many requests a second, and of questions one at a time."""

import asyncio
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import NamedTuple

import structlog

from slurm_coloc.core.rates import LogLimit, Rate, Rates
from slurm_coloc.errors import ColocError

log = structlog.get_logger()

WAIT_S = 10.0  # for the user's request before this one
SLOW_S = 1.0  # a refusal comes after this time at most, so that a flood of them costs little


class Pace(NamedTuple):
    """Of one user's requests. ``alone``: one after the other. ``slow``: a refusal is held back for
    a moment."""

    rate: Rate
    alone: bool = True
    slow: bool = True


#: All lines of a user, before one is looked at.
LINES = Pace(Rate(150.0, 1500.0), alone=False)
#: What sbatch asks, and waits for: a loop of submissions sends some 30 a second. Estimates have
#: turns of their own (flow/prepare/queue.py).
TICKETS = Pace(Rate(100.0, 1000.0), alone=False, slow=False)
#: What people ask: each costs SQLite, JSON, perhaps a Slurm command.
QUESTIONS = Pace(Rate(5.0, 20.0))

#: Of those whose answers may have thousands of runs.
REPORTS = Pace(Rate(0.2, 4.0))


class Paced:
    """Keeps users to a pace; ``trusted`` uids have none."""

    def __init__(self, pace: Pace, trusted: Collection[int]) -> None:
        self._pace = pace
        self._trusted = trusted
        self._rates = Rates(pace.rate, trusted)
        self._locks: dict[int, tuple[asyncio.Lock, int]] = {}  # of a user, and who wants it
        self._logged = LogLimit(10.0)

    @asynccontextmanager
    async def turn(self, uid: int) -> AsyncIterator[None]:
        """The turn of one request. Raises ColocError ``busy``."""
        if uid in self._trusted:
            yield
            return
        if wait_s := self._rates.take(uid, time.monotonic()):
            self._log(uid)
            if self._pace.slow:
                await asyncio.sleep(min(wait_s, SLOW_S))
            a_second = self._pace.rate.a_second
            most = (
                f"{a_second:g} requests a second"
                if a_second >= 1
                else (f"one request in {1 / a_second:g} s")
            )
            raise ColocError(f"busy: more than {most} of this user; ask again later", "busy")
        if not self._pace.alone:
            yield
            return
        lock, wanted = self._locks.get(uid, (asyncio.Lock(), 0))
        self._locks[uid] = lock, wanted + 1
        try:
            async with asyncio.timeout(WAIT_S):
                await lock.acquire()
        except TimeoutError:
            self._leave(uid)
            raise ColocError("busy: another request of this user is under way", "busy") from None
        except BaseException:
            self._leave(uid)
            raise
        try:
            yield
        finally:
            lock.release()
            self._leave(uid)

    def _leave(self, uid: int) -> None:
        lock, wanted = self._locks[uid]
        if wanted > 1:
            self._locks[uid] = lock, wanted - 1
        else:
            del self._locks[uid]

    def _log(self, uid: int) -> None:
        untold = self._logged.take("busy", time.monotonic())
        if untold is not None:
            log.warning("busy", uid=uid, error="too many requests", untold=untold)
