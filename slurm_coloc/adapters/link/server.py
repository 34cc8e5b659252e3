# SPDX-License-Identifier: Apache-2.0
"""colocd's TCP side of ``coloc/1``: who connects, and their requests, one after the other.

Until its credential is accepted a connection costs little: it has one of few places, where the
oldest of an address makes room for a newer one (an honest hello takes milliseconds, so an attacker
cannot keep the places), and few threads at once ask munged. After that the caps are those of the
Unix socket: so many connections for each ordinary user; root and SlurmUser are always let in.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import structlog

from slurm_coloc.adapters.link import frames
from slurm_coloc.adapters.link.munge import Credential, Munge, MungeError
from slurm_coloc.core.peer import Connections, Peer
from slurm_coloc.core.slurm.hosts import address
from slurm_coloc.errors import ConfigError

log = structlog.get_logger()

HELLO_S = 5.0  # from the connection to the accepted credential
IDLE_S = 90.0  # an agent's heartbeat comes every 20 s
DECODE_S = 3.0
DECODERS = 4  # threads that ask munged
WAITING = 256  # connections without an accepted credential; of one address:
WAITING_A_HOST = 16
BACKLOG = 1024
LOG_EVERY_S = 1.0

Answering = Callable[[Peer, bytes], Awaitable[bytes]]


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
        self._server: asyncio.Server | None = None
        self._decoders = ThreadPoolExecutor(DECODERS, "munge")
        # Connections without a credential yet, the oldest first, and the host of each.
        self._waiting: dict[asyncio.StreamWriter, str] = {}
        self._connections = Connections(trusted)
        self._tasks: set[asyncio.Task[None]] = set()
        self._logged_s, self._unlogged = 0.0, 0

    async def start(self) -> None:
        """Bind and listen; raises ConfigError."""
        try:
            host, port = address(self._listen)
            self._server = await asyncio.start_server(
                self._serve, host or None, port, limit=frames.MAX_LINE, backlog=BACKLOG
            )
        except (OSError, ValueError) as err:
            raise ConfigError(f"network.listen = {self._listen!r}: {err}") from err

    async def stop(self) -> None:
        """Stop listening and end every connection."""
        if self._server:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        self._decoders.shutdown(wait=False, cancel_futures=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        host = str(writer.get_extra_info("peername", ("",))[0])
        self._admit(writer, host)
        uid: int | None = None
        try:
            peer, session = await asyncio.wait_for(self._hello(reader, writer, host), HELLO_S)
            self._waiting.pop(writer, None)
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
            self._waiting.pop(writer, None)
            if uid is not None:
                self._connections.leave(uid)
            writer.close()
            with suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    def _log(self, host: str, error: str) -> None:
        """A line in the log, one in a second: nobody may fill the disk from outside."""
        now = time.monotonic()
        if now - self._logged_s >= LOG_EVERY_S:
            log.warning("link", address=host, error=error, untold=self._unlogged)
            self._logged_s, self._unlogged = now, 0
        else:
            self._unlogged += 1

    def _admit(self, writer: asyncio.StreamWriter, host: str) -> None:
        """A place among the connections without a credential; the oldest makes room."""
        self._waiting[writer] = host
        same = [one for one, where in self._waiting.items() if where == host]
        if len(same) > WAITING_A_HOST:
            same[0].transport.abort()
            self._waiting.pop(same[0])
        elif len(self._waiting) > WAITING:
            first = next(iter(self._waiting))
            first.transport.abort()
            self._waiting.pop(first)

    async def _hello(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str
    ) -> tuple[Peer, frames.Session]:
        nonce = secrets.token_hex(16)
        writer.write(frames.greeting(nonce, standby=self._standby()))
        credential = frames.credential_in(await reader.readline())
        loop = asyncio.get_running_loop()
        found: Credential = await loop.run_in_executor(
            self._decoders, self._munge.decode, credential, DECODE_S
        )
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
        while line := await asyncio.wait_for(reader.readline(), IDLE_S):
            answer = await self._answer(peer, session.open(line))
            writer.write(session.seal(answer.rstrip(b"\n")))
            await asyncio.wait_for(writer.drain(), IDLE_S)
