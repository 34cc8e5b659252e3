# SPDX-License-Identifier: Apache-2.0
"""The private channel between colocd's main process and its front: JSON lines over a socket pair.

Both ends are alike. ``call`` sends a request and waits for its answer, ``send`` sends a message
that has none. Nobody but these two processes holds an end, so each believes what the other says,
also about who the peer of a relayed request is. Both are bounded: the calls under way, the length
of a line, and what waits to be sent to a process that does not read.
"""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from slurm_coloc.errors import ColocError, DaemonUnreachable

log = structlog.get_logger()

MAX_LINE = 1 << 20  # bytes of one message
MAX_UNSENT = 1 << 23  # bytes that wait for the other process; beyond that it counts as hung
AT_ONCE = 2048  # calls under way in one direction: the agents of a large cluster may come at once

Fields = dict[str, Any]
#: Answers a call, or takes a message (its result is dropped); may raise ColocError.
Handler = Callable[[str, Fields], Awaitable[Fields]]


class Channel:
    """One end; make it with ``Channel.open``, then run ``run`` as long as it is wanted."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: Handler
    ) -> None:
        self._reader, self._writer = reader, writer
        self._handler = handler
        self._next = 0
        self._waiting: dict[int, asyncio.Future[Fields]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(cls, sock: socket.socket, handler: Handler) -> "Channel":
        """``sock``: this process' end. ``handler`` gets what the other process calls and sends."""
        reader, writer = await asyncio.open_unix_connection(sock=sock, limit=MAX_LINE)
        return cls(reader, writer, handler)

    async def call(self, op: str, deadline_s: float, **fields: Any) -> Fields:
        """The other process' answer to ``op``. Raises ColocError with the code that it answered, or
        with ``busy`` where too many calls are under way; DaemonUnreachable where it does not answer
        in ``deadline_s`` seconds or has ended."""
        if len(self._waiting) >= AT_ONCE:
            raise ColocError("busy: colocd has too many requests under way", "busy")
        self._next += 1
        number = self._next
        answer: asyncio.Future[Fields] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            if not self._put({"id": number, "op": op, "with": fields}):
                raise DaemonUnreachable(f"{op}: the other process of colocd does not take requests")
            async with asyncio.timeout(deadline_s):
                return await answer
        except TimeoutError:
            text = f"{op}: the other process of colocd gave no answer within {deadline_s:g} s"
            raise DaemonUnreachable(text) from None
        finally:
            del self._waiting[number]

    def send(self, op: str, **fields: Any) -> bool:
        """Send a message without an answer; False where the other process does not take it."""
        return self._put({"op": op, "with": fields})

    def _put(self, message: Fields) -> bool:
        transport = self._writer.transport
        if transport.is_closing() or transport.get_write_buffer_size() > MAX_UNSENT:
            return False
        line = json.dumps(message).encode() + b"\n"
        if len(line) > MAX_LINE:
            return False
        self._writer.write(line)
        return True

    async def run(self) -> None:
        """Take what comes until the other process ends."""
        try:
            while line := await self._reader.readline():
                self._take(json.loads(line))
                await asyncio.sleep(0)  # many lines may be there: others get their turn between two
        except (OSError, ValueError) as err:
            log.error("channel", error=str(err)[:200])
        finally:
            self.close()

    def close(self) -> None:
        """Close this end; calls under way fail."""
        self._writer.close()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(DaemonUnreachable("the other process of colocd has ended"))

    def _take(self, message: Fields) -> None:
        if "op" in message:
            task = asyncio.create_task(self._handle(message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        answer = self._waiting.get(message["id"])
        if answer is None or answer.done():
            return  # it came too late
        if error := message.get("error"):
            answer.set_exception(ColocError(error["message"], error["code"]))
        else:
            answer.set_result(message["answer"])

    async def _handle(self, message: Fields) -> None:
        number = message.get("id")
        try:
            back: Fields = {"answer": await self._handler(message["op"], message["with"])}
        except ColocError as err:
            back = {"error": {"code": err.code, "message": err.message}}
        except Exception:
            log.exception("channel", op=message["op"])
            text = "colocd failed on this request; see its log"
            back = {"error": {"code": "internal", "message": text}}
        if number is None:
            return
        if not self._put({"id": number, **back}):
            text = "colocd's answer is too large, or its other process does not take it"
            self._put({"id": number, "error": {"code": "internal", "message": text}})
