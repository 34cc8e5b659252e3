# SPDX-License-Identifier: Apache-2.0
"""Bounds the questions to slurmctld, and those to slurmdbd: few at once, few that wait, none while
it is away.

A slurmctld that is busy or restarting makes every question last its whole time limit. Without a
bound colocd's loops would pile up processes, and load a slurmctld that has just come back.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from slurm_coloc.errors import SlurmError

T = TypeVar("T")

AT_ONCE = 2  # questions under way; slurmctld has other clients too
WAITING = 64  # questions that may wait for one of these places
MISSES = 3  # unanswered ones in a row after which it counts as away
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 15.0  # until the next try then, doubling


class Gate:
    """Bounds and a short circuit breaker around questions that may block."""

    def __init__(self, peer: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._peer = peer
        self._clock = clock
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0
        self._misses = 0
        self._until_s = 0.0

    async def through(self, question: Callable[[], Awaitable[T]]) -> T:
        """The answer to ``question``, which must end by itself.

        Raises SlurmError at once, without asking: ``slurm-away`` while the peer is away,
        ``slurm-busy`` when too many wait already.
        """
        self._check()
        if self._waiting >= WAITING:
            raise SlurmError(f"{WAITING} questions to {self._peer} wait already", "slurm-busy")
        self._waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1
        try:
            self._check()
            # The others stay outside while one tries whether it is back.
            self._until_s = self._clock() + self._pause_s()
            return await self._answer(question)
        finally:
            self._slots.release()

    async def _answer(self, question: Callable[[], Awaitable[T]]) -> T:
        try:
            answer = await question()
        except SlurmError as err:
            self._misses = self._misses + 1 if err.away else 0
            self._until_s = self._clock() + self._pause_s()
            raise
        self._misses = 0
        return answer

    def _pause_s(self) -> float:
        doublings = min(max(0, self._misses - MISSES), 10)
        return min(FIRST_PAUSE_S * 2.0**doublings, LONGEST_PAUSE_S)

    def _check(self) -> None:
        left_s = self._until_s - self._clock()
        if self._misses >= MISSES and left_s > 0:
            raise SlurmError(
                f"{self._peer} gave no answer {self._misses} times; next try in {left_s:.0f} s",
                "slurm-away",
            )
