# SPDX-License-Identifier: Apache-2.0
"""The agent's links for requests that it passes on: one is always open, more open as needed.

A link answers one request after the other, and colocd may take seconds for a report. So each
request has a link to itself while it is under way, and none waits behind another, nor does the
heartbeat, which has a link of its own.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from slurm_coloc.adapters.link.stream import Link
from slurm_coloc.errors import ColocError, DaemonUnreachable

MOST = 4  # requests under way at once; others wait for half of their time
KEPT_S = 45.0  # an idle link: colocd ends one that is silent for 90 s

Opening = Callable[[], Awaitable[Link]]


class Passed(NamedTuple):
    """colocd's answer, and where that colocd is."""

    where: str
    answer: dict[str, Any]


class Links:
    """Links to one colocd, made by ``opening``, which raises DaemonUnreachable."""

    def __init__(self, opening: Opening) -> None:
        """None is open yet."""
        self._opening = opening
        self._idle: list[tuple[Link, float]] = []  # and since when
        self._under_way: set[asyncio.Task[Passed]] = set()
        self._slots = asyncio.Semaphore(MOST)
        self._closed = False

    async def exchange(self, request: bytes, within_s: float) -> Passed:
        """colocd's answer within ``within_s`` seconds; raises ColocError ``busy`` or ``late``, or
        DaemonUnreachable."""
        begin = time.monotonic()
        try:
            async with asyncio.timeout(within_s / 2):
                await self._slots.acquire()
        except TimeoutError:
            raise ColocError(f"{MOST} requests are under way", "busy") from None
        task = asyncio.create_task(self._exchange(request))
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        # What comes too late is still read: the link is of use again then.
        left_s = within_s - (time.monotonic() - begin)
        done, _ = await asyncio.wait({task}, timeout=left_s)
        if not done:
            raise ColocError(f"colocd gave no answer within {within_s:.2f} s", "late")
        if task.cancelled():
            raise DaemonUnreachable("the link to colocd was lost")
        return task.result()

    def _ended(self, task: asyncio.Task[Passed]) -> None:
        self._under_way.discard(task)
        self._slots.release()
        if not task.cancelled():
            task.exception()  # seen, also where nobody waits any more

    async def _exchange(self, request: bytes) -> Passed:
        if self._idle:
            link = self._idle.pop()[0]
            try:
                return await self._use(link, request)
            except DaemonUnreachable:
                pass  # it was cut while nobody used it: once more on a new one
        return await self._use(await self._opening(), request)

    async def _use(self, link: Link, request: bytes) -> Passed:
        try:
            answer = await link.exchange(request)
        except BaseException:
            link.abort()
            raise
        self._keep(link)
        return Passed(link.where, answer)

    def _keep(self, link: Link) -> None:
        if self._closed:
            link.abort()
        else:
            self._idle.append((link, time.monotonic()))

    async def refresh(self) -> None:
        """Keep one link open, and alive; close the others that nobody uses. Never raises."""
        before_s = time.monotonic() - KEPT_S
        old = [one for one in self._idle if one[1] < before_s]
        self._idle = [one for one in self._idle if one[1] >= before_s]
        if old and not self._idle:
            link = old.pop()[0]
            try:
                await self._use(link, b'{"v":1,"op":"ping"}')
            except DaemonUnreachable:
                pass
        for link, _ in old:
            link.abort()
        if not self._idle and not self._under_way and not self._closed:
            try:
                self._keep(await self._opening())
            except DaemonUnreachable:
                pass  # the heartbeat's link tells

    def close(self) -> None:
        """End all of them."""
        self._closed = True
        for task in list(self._under_way):
            task.cancel()
        idle, self._idle = self._idle, []
        for link, _ in idle:
            link.abort()
