# SPDX-License-Identifier: Apache-2.0
"""colocd's Unix sockets: one request a line, one answer a request, and who asks.

There are two. Slurmctld's hook has one of its own, in a folder of SlurmUser's that no user can
enter; it is served by colocd's main process. Everybody may connect to the other, which the front
serves. The peer's uid comes from the kernel (SO_PEERCRED), so it cannot be forged. The hook asks
for the flat form, which Lua reads without a JSON library; everybody else gets JSON.
"""

import asyncio
import json
import os
import socket
import struct
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

from slurm_coloc.core.peer import Connections, Peer
from slurm_coloc.core.rates import LogLimit, Rate, Rates
from slurm_coloc.errors import ColocError, ConfigError, UsageFault

log = structlog.get_logger()

MAX_LINE = 262144  # bytes; a forwarded summary is at most 65536
USERS_LINE = 131072  # bytes that an ordinary user may send in one line
IDLE_S = 30.0  # a connection that says nothing is closed
BACKLOG = 1024  # connections that wait to be accepted
HOOK_BACKLOG = 128  # of slurmctld, which makes one at a time
ACCEPTS = 32  # connections that are taken before others get their turn
CONNECTS = Rate(100.0, 1000.0)  # connections of an ordinary user
UNSENT = 1 << 25  # bytes of answers that ordinary users have not read yet
ACCEPT_AGAIN_S = 0.5  # after a failed accept: no file descriptor is left
SECOND_S = 3.0  # so long another colocd may take to end

Message = dict[str, Any]

Handler = Callable[[Peer, Message], Awaitable[Message]]
#: The answer to one line, with its newline; never raises.
Answering = Callable[[Peer, bytes], Awaitable[bytes]]


def flat(answer: Message) -> bytes:
    """``key=value`` lines with backslash, newline and carriage return escaped; an empty line ends
    the answer."""

    def text(value: object) -> str:
        plain = str(int(value)) if isinstance(value, bool) else str(value)
        return plain.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")

    return "".join(f"{key}={text(value)}\n" for key, value in answer.items()).encode() + b"\n"


def encode(answer: Message, *, as_flat: bool = False) -> bytes:
    """The bytes of an answer."""
    if not as_flat:
        return json.dumps(answer).encode() + b"\n"
    error = answer.get("error")
    return flat({"v": 1, "ok": 0, **error} if error else answer)


def error_answer(err: ColocError) -> Message:
    """The answer that tells an error."""
    return {"v": 1, "ok": False, "error": {"code": err.code, "message": err.message}}


def decode(line: bytes) -> Message:
    """The request in a line; raises UsageFault."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as err:
        text = str(err)[:200]
        raise UsageFault(f"the request is not JSON: {text}", "bad-request") from err
    if not isinstance(message, dict) or message.get("v") != 1:
        raise UsageFault("the request is not an object with v = 1", "bad-request")
    return message


def wants_flat(peer: Peer, message: Message) -> bool:
    """Whether the answer goes out in the flat form."""
    return message.get("flat") is True and not peer.remote


class Faults:
    """What is answered to requests that failed. A defect of ours must not end the daemon (the hook
    then takes the safe side), and nobody may fill the log with one: it is logged once a second for
    each line of code that raises it."""

    def __init__(self) -> None:
        self._logged = LogLimit()

    def answer(self, peer: Peer, err: Exception) -> Message:
        """The answer that tells ``err``."""
        if isinstance(err, ColocError):
            return error_answer(err)
        where = err.__traceback__
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        line = f"{where.tb_frame.f_code.co_filename}:{where.tb_lineno}" if where else ""
        untold = self._logged.take(f"{type(err).__name__} {line}", time.monotonic())
        if untold is not None:
            log.error("request", uid=peer.uid, untold=untold, exc_info=err)
        return error_answer(ColocError("colocd failed on this request; see its log", "internal"))


def answering(handler: Handler) -> Answering:
    """Answers lines with what ``handler`` makes of their messages."""
    faults = Faults()

    async def answer(peer: Peer, line: bytes) -> bytes:
        as_flat = False
        try:
            message = decode(line)
            as_flat = wants_flat(peer, message)
            found = {"v": 1, "ok": True, **await handler(peer, message)}
        except Exception as err:
            found = faults.answer(peer, err)
        return encode(found, as_flat=as_flat)

    return answer


def private_folder(folder: Path, uid: int) -> None:
    """Make ``folder``, which nobody but root and ``uid`` may enter. Raises ConfigError where it
    cannot be made, is a link, or is another user's."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            found = os.fstat(fd)
            if found.st_uid not in (uid, os.geteuid()):
                text = f"{folder}: belongs to uid {found.st_uid}, not to SlurmUser: remove it"
                raise ConfigError(f"{text}, colocd makes it anew")
            os.fchmod(fd, 0o700)
            if found.st_uid != uid:
                os.fchown(fd, uid, -1)
        finally:
            os.close(fd)
    except OSError as err:
        raise ConfigError(f"{folder}: cannot be the folder of the hook's socket: {err}") from err


class Server:
    """Listens on ``path`` and hands every line to ``answer``. ``trusted`` uids (slurmctld's hook,
    the Epilog, the agent) are always let in; with ``everybody`` other users too."""

    def __init__(
        self, path: Path, answer: Answering, trusted: Collection[int], *, everybody: bool = True
    ) -> None:
        self._path = path
        self._answer = answer
        self._trusted = trusted
        self._everybody = everybody
        self._listener: socket.socket | None = None
        self._connections = Connections(trusted)
        self._connects = Rates(CONNECTS, trusted)
        self._logged = LogLimit()
        self._tasks: set[asyncio.Task[None]] = set()
        self._unsent = 0

    async def start(self) -> None:
        """Bind and listen; a socket that nobody serves any more is replaced. Raises ConfigError."""
        await self._refuse_second()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            listener.setblocking(False)
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.unlink(missing_ok=True)
            listener.bind(str(self._path))
            # Where everybody may connect, the peer's uid decides what is answered.
            os.chmod(self._path, 0o666 if self._everybody else 0o600)  # noqa: PTH101
            listener.listen(BACKLOG if self._everybody else HOOK_BACKLOG)
        except OSError as err:
            listener.close()
            raise ConfigError(f"{self._path}: cannot listen: {err}") from err
        self._listener = listener
        asyncio.get_running_loop().add_reader(listener, self._accept)

    async def _refuse_second(self) -> None:
        """Wait a little for another colocd to end; raise ConfigError where it does not."""
        end = time.monotonic() + SECOND_S
        while time.monotonic() < end:
            try:
                _, writer = await asyncio.open_unix_connection(self._path)
            except OSError:
                return
            writer.close()
            await asyncio.sleep(0.1)
        raise ConfigError(f"{self._path}: another colocd is listening there")

    async def stop(self) -> None:
        """Stop listening and remove the socket."""
        if self._listener:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
            self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        """Take waiting connections. One that gets no place costs an accept and a short line."""
        loop = asyncio.get_running_loop()
        for _ in range(ACCEPTS):
            if self._listener is None:
                return
            try:
                conn, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as err:  # no file descriptor is left: let some be closed
                self._log("accept", error=str(err))
                loop.remove_reader(self._listener)
                loop.call_later(ACCEPT_AGAIN_S, self._listen_again)
                return
            conn.setblocking(False)
            peer = _peer(conn)
            if refusal := self._refusal(peer):
                with conn, suppress(OSError):
                    conn.send(encode(error_answer(refusal)))
                continue
            task = loop.create_task(self._serve(conn, peer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _listen_again(self) -> None:
        if self._listener:
            asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _refusal(self, peer: Peer) -> ColocError | None:
        """Why a new connection is closed at once; None where it has got a place."""
        if not self._everybody and peer.uid not in self._trusted:
            return UsageFault("this socket is slurmctld's", "not-allowed")
        if self._connects.take(peer.uid, time.monotonic()):
            self._log("busy", uid=peer.uid, error="too many connects")
            text = f"busy: more than {CONNECTS.a_second:g} connections a second of this user"
            return ColocError(text, "busy")
        if not self._connections.enter(peer.uid):
            self._log("busy", uid=peer.uid, error="too many connections")
            return ColocError("busy: too many connections of this user, or of all", "busy")
        return None

    def _log(self, event: str, **fields: Any) -> None:
        untold = self._logged.take(event, time.monotonic())
        if untold is not None:
            log.warning(event, socket=str(self._path), untold=untold, **fields)

    async def _serve(self, conn: socket.socket, peer: Peer) -> None:
        writer = None
        try:
            most = MAX_LINE if peer.uid in self._trusted else USERS_LINE
            reader, writer = await asyncio.open_unix_connection(sock=conn, limit=most)
            while line := await _line(reader):
                if not await self._respond(writer, peer, await self._answer(peer, line)):
                    break
        except (TimeoutError, OSError, ValueError):
            pass  # ValueError: a line that is too long
        finally:
            self._connections.leave(peer.uid)
            conn.close() if writer is None else writer.close()
            if writer is not None:
                with suppress(OSError):
                    await writer.wait_closed()

    async def _respond(self, writer: asyncio.StreamWriter, peer: Peer, answer: bytes) -> bool:
        """Send an answer; False where users have too much to read already. Raises TimeoutError."""
        size = 0 if peer.uid in self._trusted else len(answer)
        if size and self._unsent + size > UNSENT:
            self._log("busy", uid=peer.uid, error="users do not read their answers")
            return False
        self._unsent += size
        try:
            writer.write(answer)
            async with asyncio.timeout(IDLE_S):
                await writer.drain()
        finally:
            self._unsent -= size
        return True


def _peer(conn: socket.socket) -> Peer:
    raw = conn.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", raw)
    return Peer(uid=uid & 0xFFFFFFFF, pid=pid)


async def _line(reader: asyncio.StreamReader) -> bytes:
    """The next line; raises TimeoutError."""
    async with asyncio.timeout(IDLE_S):
        return await reader.readline()
