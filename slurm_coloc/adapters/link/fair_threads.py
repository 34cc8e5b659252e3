# SPDX-License-Identifier: Apache-2.0
"""A few threads for calls that block, shared between origins in turn.

An origin with a hundred calls waits behind its own: the next free thread is the next origin's.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class FairThreads:
    """Threads of one event loop."""

    def __init__(self, threads: int, name: str) -> None:
        """``threads``: calls at once."""
        self._free = threads
        self._executor = ThreadPoolExecutor(threads, name)
        self._waiting: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()

    async def run(self, whose: Hashable, what: Callable[..., T], *args: Any) -> T:
        """The result of ``what(*args)`` in a thread, when it is the turn of ``whose``."""
        loop = asyncio.get_running_loop()
        if self._free > 0:
            self._free -= 1
        else:
            turn: asyncio.Future[None] = loop.create_future()
            self._waiting.setdefault(whose, deque()).append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():  # it was given the thread meanwhile
                    self._next()
                raise
        running = loop.run_in_executor(self._executor, what, *args)
        # A caller that stops waiting does not end the thread's call.
        running.add_done_callback(self._ended)
        return await asyncio.shield(running)

    def _ended(self, running: "asyncio.Future[Any]") -> None:
        if not running.cancelled():
            running.exception()  # seen, also where nobody waits any more
        self._next()

    def _next(self) -> None:
        """Give the free thread to the next origin's first caller that still waits."""
        while self._waiting:
            whose, queue = self._waiting.popitem(last=False)
            turn = queue.popleft()
            if queue:
                self._waiting[whose] = queue  # behind the others
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def close(self) -> None:
        """Take no more calls."""
        self._executor.shutdown(wait=False, cancel_futures=True)
