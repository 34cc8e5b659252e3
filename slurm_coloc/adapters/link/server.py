# SPDX-License-Identifier: Apache-2.0
"""colocd's TCP side of ``coloc/1``: who connects, and their requests, one after the other.

Until its credential is accepted a connection costs little. New ones have a rate by their origin
(admission.py): what is over it is closed as soon as it is accepted, without a task or a byte, and
a flood is dropped by the kernel before that (flood.py). So many are accepted in a turn of the event
loop, so that a flood cannot hold it. Within the rate a connection has one of few places, where the
oldest of its own origin makes room first; origins that authenticated before have places of their
own. Few threads at once ask munged, in turn for each origin. After that the caps are those of the
Unix socket: so many connections for each ordinary user; root and SlurmUser are always let in.
"""

import asyncio
import secrets
import socket
import struct
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress

import structlog

from slurm_coloc.adapters.link import frames
from slurm_coloc.adapters.link.admission import Admission, Origin, Places, origin
from slurm_coloc.adapters.link.fair_threads import FairThreads
from slurm_coloc.adapters.link.flood import DROP_S, Dropped, detach
from slurm_coloc.adapters.link.munge import Credential, Munge, MungeError
from slurm_coloc.core.peer import Connections, Peer
from slurm_coloc.core.rates import LogLimit
from slurm_coloc.core.slurm.hosts import address
from slurm_coloc.errors import ConfigError

log = structlog.get_logger()

HELLO_S = 5.0  # from the connection to the accepted credential
IDLE_S = 90.0  # an agent's heartbeat comes every 20 s
DECODE_S = 3.0
DECODERS = 4  # threads that ask munged
WAITING = 256  # connections without an accepted credential, of strangers and of known origins each
WAITING_A_HOST = 16  # of them of one origin
BACKLOG = 4096
ACCEPTED_A_TURN = 64  # connections, about 1 ms: the loop does other work between
STOP_S = 1.0  # for connections to end
NO_FILES_S = 0.5  # pause where this process has no file descriptors left
LOG_EVERY_S = 1.0
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close at once, keep nothing of the connection

Answering = Callable[[Peer, bytes], Awaitable[bytes]]
Task = asyncio.Task[None]


class LinkServer:
    """Listens where the configuration says and hands every request to ``answer``."""

    def __init__(
        self,
        listen: str,
        munge: Munge,
        answer: Answering,
        trusted: Collection[int],
        standby: Callable[[], bool],
    ) -> None:
        """``listen``: ``host:port`` or ``:port``. ``standby``: what the greeting says."""
        self._listen = listen
        self._munge = munge
        self._answer = answer
        self._standby = standby
        self._listeners: list[socket.socket] = []
        self._decoders = FairThreads(DECODERS, "munge")
        self._admission = Admission(time.monotonic())
        self._dropped = Dropped()
        self._strangers: Places[Task] = Places(WAITING, WAITING_A_HOST)
        self._known: Places[Task] = Places(WAITING, WAITING_A_HOST)
        self._connections = Connections(trusted)
        self._tasks: set[Task] = set()
        self._logged = LogLimit(LOG_EVERY_S)

    async def start(self) -> None:
        """Bind and listen; raises ConfigError."""
        try:
            host, port = address(self._listen)
            self._listeners = await _listeners(host, port)
        except (OSError, ValueError) as err:
            raise ConfigError(f"network.listen = {self._listen!r}: {err}") from err
        for one in self._listeners:
            asyncio.get_running_loop().add_reader(one, self._accept, one)

    async def stop(self) -> None:
        """Stop listening and end every connection."""
        for one in self._listeners:
            asyncio.get_running_loop().remove_reader(one)
            one.close()
        self._listeners = []
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_S)
        self._decoders.close()

    def _accept(self, listener: socket.socket) -> None:
        """Take what has connected, ACCEPTED_A_TURN at most: the rest comes in the next turn."""
        now_s = time.monotonic()
        for _ in range(ACCEPTED_A_TURN):
            try:
                sock, where = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError as err:
                self._log("", f"no connection can be accepted: {err.strerror or err}")
                self._pause(listener)
                return
            host = str(where[0])
            one = origin(host, where[1])
            if self._admission.admit(one, now_s):
                self._admit(sock, host, one, now_s)
            else:
                self._refuse(sock, host, one, now_s)

    def _pause(self, listener: socket.socket) -> None:
        """Wait until other connections have ended."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener)

        def again() -> None:
            if listener in self._listeners:
                loop.add_reader(listener, self._accept, listener)

        loop.call_later(NO_FILES_S, again)

    def _refuse(self, sock: socket.socket, host: str, one: Origin, now_s: float) -> None:
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        sock.close()
        self._log(host, "more new connections than its rate allows")
        if self._admission.floods(one, now_s) and self._dropped.add(one, now_s):
            self._apply_dropped()
            asyncio.get_running_loop().call_later(DROP_S, self._expire_dropped)

    def _expire_dropped(self) -> None:
        if self._dropped.expire(time.monotonic()):
            self._apply_dropped()

    def _apply_dropped(self) -> None:
        try:
            self._dropped.apply(self._listeners)
        except OSError as err:  # a flood then costs time: its connections are closed one by one
            self._log("", f"the kernel takes no filter: {err.strerror or err}")

    def _admit(self, sock: socket.socket, host: str, one: Origin, now_s: float) -> None:
        """A task for the connection, and a place; who had it longest makes room."""
        sock.setblocking(False)
        detach(sock)
        task = asyncio.get_running_loop().create_task(self._serve(sock, host, one))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        places = self._known if self._admission.knows(one, now_s) else self._strangers

        def ended(task: Task) -> None:
            places.leave(task, one)
            if task.cancelled():  # before it began: nobody else closes the socket
                sock.close()

        task.add_done_callback(ended)
        loser = places.enter(task, one)
        if loser is not None:
            loser.cancel()

    async def _serve(self, sock: socket.socket, host: str, one: Origin) -> None:
        try:
            reader, writer = await asyncio.open_connection(sock=sock, limit=frames.MAX_LINE)
        except (OSError, asyncio.CancelledError):
            sock.close()
            return
        uid: int | None = None
        try:
            async with asyncio.timeout(HELLO_S):
                peer, session = await self._hello(reader, writer, host, one)
            self._authenticated(one)
            if not self._connections.enter(peer.uid):
                writer.write(frames.refused("busy", "too many connections of this user"))
                return
            uid = peer.uid
            await self._talk(reader, writer, peer, session)
        except frames.ProtocolError as err:
            self._log(host, err.message)
            writer.write(frames.refused(err.code, err.message))
        except MungeError as err:
            self._log(host, err.message)
            writer.write(frames.refused("busy" if err.away else err.code, err.message))
        except (TimeoutError, OSError, ValueError, asyncio.CancelledError):
            pass  # ValueError: a line over MAX_LINE
        finally:
            if uid is not None:
                self._connections.leave(uid)
                self._admission.accepted(one, time.monotonic())
            writer.close()
            with suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    def _authenticated(self, one: Origin) -> None:
        """The connection needs no place any more, and its origin is known from now on."""
        self._admission.accepted(one, time.monotonic())
        task = asyncio.current_task()
        if task is not None:
            self._known.leave(task, one)
            self._strangers.leave(task, one)

    def _log(self, host: str, error: str) -> None:
        """A line in the log, one in a second: nobody may fill the disk from outside."""
        untold = self._logged.take("link", time.monotonic())
        if untold is not None:
            log.warning("link", address=host, error=error, untold=untold)

    async def _hello(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, one: Origin
    ) -> tuple[Peer, frames.Session]:
        nonce = secrets.token_hex(16)
        writer.write(frames.greeting(nonce, standby=self._standby()))
        credential = frames.credential_in(await reader.readline())
        found: Credential = await self._decoders.run(one, self._munge.decode, credential, DECODE_S)
        hello = frames.read_hello(found.payload)
        if not secrets.compare_digest(hello.nonce.encode(), nonce.encode()):
            raise frames.ProtocolError("the credential was made for another connection")
        peer = Peer(
            uid=found.uid, remote=True, address=host, node=hello.node, cluster=hello.cluster
        )
        return peer, frames.Session(hello.key, nonce, server=True)

    async def _talk(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        peer: Peer,
        session: frames.Session,
    ) -> None:
        while line := await _line(reader):
            answer = await self._answer(peer, session.open(line))
            writer.write(session.seal(answer.rstrip(b"\n")))
            async with asyncio.timeout(IDLE_S):
                await writer.drain()


async def _line(reader: asyncio.StreamReader) -> bytes:
    """The next line; raises TimeoutError."""
    async with asyncio.timeout(IDLE_S):
        return await reader.readline()


async def _listeners(host: str, port: int) -> list[socket.socket]:
    """Listening sockets on each address of ``host``, on all where it is ""; raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    listeners: list[socket.socket] = []
    try:
        for family, place in dict.fromkeys((one[0], one[4]) for one in found):
            try:
                one = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
            except OSError:
                continue  # the kernel has no IPv6
            listeners.append(one)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind(place)
            one.listen(BACKLOG)
            one.setblocking(False)
        if not listeners:
            raise OSError("no address to listen on")
    except BaseException:
        for each in listeners:
            each.close()
        raise
    return listeners
