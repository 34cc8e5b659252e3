# SPDX-License-Identifier: Apache-2.0
"""A thread for calls that may hang for ever, used from asyncio with a time limit."""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Worker:
    """Runs one call after another. A call that hangs keeps the thread, never the program: it is a
    daemon thread, and asking again meanwhile is refused."""

    def __init__(self, name: str) -> None:
        self._todo: queue.SimpleQueue[tuple[Callable[[], Any], Any, Any]] = queue.SimpleQueue()
        self._running: asyncio.Future[Any] | None = None
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        while True:
            what, loop, future = self._todo.get()
            try:
                result, error = what(), None
            except BaseException as err:
                result, error = None, err
            try:
                loop.call_soon_threadsafe(_settle, future, result, error)
            except RuntimeError:
                return  # the program has ended

    async def call(self, what: Callable[[], T], limit_s: float) -> T:
        """The result of ``what``; raises TimeoutError after ``limit_s``, and at once while an
        earlier call hangs."""
        if self._running is not None and not self._running.done():
            raise TimeoutError("an earlier call has not returned")
        loop = asyncio.get_running_loop()
        self._running = loop.create_future()
        self._todo.put((what, loop, self._running))
        async with asyncio.timeout(limit_s):
            result: T = await asyncio.shield(self._running)
        return result


def _settle(future: "asyncio.Future[Any]", result: object, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
        future.exception()  # told, also where nobody waits any more
