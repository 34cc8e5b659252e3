# SPDX-License-Identifier: Apache-2.0
"""Whose text is next: one of a user at a time, users in turn, and a worker that is always left to
users whose texts took no more than others'."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

from slurm_coloc.core.decide.prepared import Prepared

MAX_WAITING = 16  # texts of one user
MAX_WAITING_ALL = 512


@dataclass(eq=False, slots=True)
class Work:
    """A text of a user. ``key`` names it with its options, ``text`` alone; ``callers`` wait for
    ``done``."""

    uid: int
    key: str
    text: str
    packed: str
    given: dict[str, int | str | None]
    done: "asyncio.Future[Prepared]"
    callers: int = 0


class TextQueue:
    """Texts that wait and texts that run."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._waiting: OrderedDict[int, deque[Work]] = OrderedDict()  # users in their order
        self._running: dict[int, Work] = {}

    def works(self) -> list[Work]:
        """All that run or wait."""
        return [*self._running.values(), *(one for mine in self._waiting.values() for one in mine)]

    def runs(self, uid: int) -> bool:
        """Whether a text of this user is being estimated."""
        return uid in self._running

    def waits(self, work: Work) -> bool:
        """Whether it has not begun."""
        return work in self._waiting.get(work.uid, ())

    def same(self, uid: int, key: str) -> Work | None:
        """The same text and options of anybody that runs, or that waits for this user."""
        here = (*self._running.values(), *self._waiting.get(uid, ()))
        return next((work for work in here if work.key == key), None)

    def add(self, work: Work) -> bool:
        """Behind this user's others; False where too many wait."""
        mine = self._waiting.get(work.uid, ())
        if len(mine) >= MAX_WAITING or sum(map(len, self._waiting.values())) >= MAX_WAITING_ALL:
            return False
        self._waiting.setdefault(work.uid, deque()).append(work)
        return True

    def remove(self, work: Work) -> bool:
        """Whether it waited and does no longer."""
        mine = self._waiting.get(work.uid)
        if mine is None or work not in mine:
            return False
        mine.remove(work)
        if not mine:
            del self._waiting[work.uid]
        return True

    def next(self, costly: Callable[[int], bool]) -> Work | None:
        """The text that is to run now, None where nothing may. Users of whom ``costly`` is true
        share all workers but one."""
        if len(self._running) >= self._workers:
            return None
        full = sum(map(costly, self._running)) >= self._workers - 1
        for uid, mine in self._waiting.items():
            if uid in self._running or (full and costly(uid)):
                continue
            work = mine.popleft()
            if mine:
                self._waiting.move_to_end(uid)
            else:
                del self._waiting[uid]
            self._running[uid] = work
            return work
        return None

    def over(self, work: Work) -> None:
        """It runs no longer."""
        del self._running[work.uid]
