# SPDX-License-Identifier: Apache-2.0
"""colocd's Unix socket: one request a line, one answer a request, and who asks.

The peer's uid comes from the kernel (SO_PEERCRED), so it cannot be forged. The hook in slurmctld
asks for the flat form, which Lua reads without a JSON library; everybody else gets JSON.
"""

import asyncio
import json
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

from slurm_coloc.core.peer import Connections, Peer
from slurm_coloc.errors import ColocError, ConfigError, UsageFault

log = structlog.get_logger()

MAX_LINE = 262144  # bytes; a forwarded summary is at most 65536
IDLE_S = 30.0  # a connection that says nothing is closed
BACKLOG = 128

Message = dict[str, Any]

Handler = Callable[[Peer, Message], Awaitable[Message]]


def flat(answer: Message) -> bytes:
    """``key=value`` lines with backslash, newline and carriage return escaped; an empty line ends
    the answer."""

    def text(value: object) -> str:
        plain = str(int(value)) if isinstance(value, bool) else str(value)
        return plain.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")

    return "".join(f"{key}={text(value)}\n" for key, value in answer.items()).encode() + b"\n"


def encode(answer: Message, *, as_flat: bool) -> bytes:
    """The bytes of an answer."""
    if not as_flat:
        return json.dumps(answer).encode() + b"\n"
    error = answer.get("error")
    return flat({"v": 1, "ok": 0, **error} if error else answer)


def _peer(writer: asyncio.StreamWriter) -> Peer:
    sock = writer.get_extra_info("socket")
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", raw)
    return Peer(uid=uid, pid=pid)


def _error(err: ColocError) -> Message:
    return {"v": 1, "ok": False, "error": {"code": err.code, "message": err.message}}


def _decode(line: bytes) -> Message:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as err:
        raise UsageFault(f"the request is not JSON: {err}", "bad-request") from err
    if not isinstance(message, dict) or message.get("v") != 1:
        raise UsageFault("the request is not an object with v = 1", "bad-request")
    return message


class Server:
    """Listens on ``path`` and hands every request to ``handler``. ``trusted`` uids (slurmctld's
    hook and the Epilog) are always let in."""

    def __init__(self, path: Path, handler: Handler, trusted: Collection[int]) -> None:
        self._path = path
        self._handler = handler
        self._server: asyncio.Server | None = None
        self._connections = Connections(trusted)

    async def start(self) -> None:
        """Bind and listen; a socket that nobody serves any more is replaced."""
        await self._refuse_second()
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.unlink(missing_ok=True)
            self._server = await asyncio.start_unix_server(
                self._serve, self._path, limit=MAX_LINE, backlog=BACKLOG
            )
            # Everybody may connect; the peer's uid decides what is answered.
            os.chmod(self._path, 0o666)  # noqa: PTH101
        except OSError as err:
            raise ConfigError(f"{self._path}: cannot listen: {err}") from err

    async def _refuse_second(self) -> None:
        try:
            _, writer = await asyncio.open_unix_connection(self._path)
        except OSError:
            return
        writer.close()
        raise ConfigError(f"{self._path}: another colocd is listening there")

    async def stop(self) -> None:
        """Stop listening and remove the socket."""
        if self._server:
            self._server.close()
            self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = _peer(writer)
        if not self._connections.enter(peer.uid):
            writer.close()
            return
        try:
            while line := await asyncio.wait_for(reader.readline(), IDLE_S):
                writer.write(await self.answer(peer, line))
                await asyncio.wait_for(writer.drain(), IDLE_S)
        except (TimeoutError, OSError, ValueError):
            pass  # ValueError: a line over MAX_LINE
        finally:
            self._connections.leave(peer.uid)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def answer(self, peer: Peer, line: bytes) -> bytes:
        """The answer to one request, with its newline; never raises."""
        as_flat = False
        try:
            message = _decode(line)
            as_flat = message.get("flat") is True and not peer.remote
            answer = {"v": 1, "ok": True, **await self._handler(peer, message)}
        except ColocError as err:
            answer = _error(err)
        except Exception:
            # A defect of ours must not end the daemon; the hook then takes the safe side.
            log.exception("request", uid=peer.uid)
            answer = _error(ColocError("colocd failed on this request; see its log", "internal"))
        return encode(answer, as_flat=as_flat)
