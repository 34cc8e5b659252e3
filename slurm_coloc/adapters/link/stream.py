# SPDX-License-Identifier: Apache-2.0
"""One lasting connection to colocd on asyncio, for the agent: TCP, or this host's Unix socket."""

import asyncio
import json
import socket
from collections.abc import Collection
from pathlib import Path
from typing import Any

from slurm_coloc.adapters.link import frames, source_port
from slurm_coloc.adapters.link.client import HINT, Me, served_by, words
from slurm_coloc.adapters.link.munge import MungeError
from slurm_coloc.core.slurm.hosts import address
from slurm_coloc.errors import DaemonUnreachable

OPEN_S = 5.0
ANSWER_S = 30.0


class Link:
    """An authenticated connection; make it with ``Link.open``."""

    def __init__(
        self, where: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.where = where
        self.standby = False
        self._reader = reader
        self._writer = writer
        self._session: frames.Session | None = None

    @classmethod
    async def open(cls, target: str, me: Me) -> "Link":
        """Connect to ``host:port``; raises DaemonUnreachable."""
        try:
            async with asyncio.timeout(OPEN_S):
                return await cls._open(target, me)
        except TimeoutError:
            raise DaemonUnreachable(f"{target}: no answer within {OPEN_S:g} s") from None
        except (OSError, ValueError, frames.ProtocolError, MungeError) as err:
            raise DaemonUnreachable(f"{target}: {words(err)}: {HINT}") from err

    @classmethod
    async def _open(cls, target: str, me: Me) -> "Link":
        host, port = address(target)
        sock = await _connected(host, port)
        reader, writer = await asyncio.open_connection(sock=sock, limit=2**20)
        link = cls(target, reader, writer)
        try:
            greeting = frames.read_greeting(await reader.readline())
            link.standby = greeting.standby
            line, link._session = await asyncio.to_thread(me.hello, greeting.nonce, OPEN_S)
            writer.write(line)
        except BaseException:
            writer.close()
            raise
        return link

    async def call(self, op: str, **fields: Any) -> dict[str, Any]:
        """Send one request, return the answer (``ok`` may be false); DaemonUnreachable."""
        return await self.exchange(json.dumps({"v": 1, "op": op, **fields}).encode())

    async def exchange(self, text: bytes) -> dict[str, Any]:
        """Send a request's JSON as it stands, return the answer; raises DaemonUnreachable."""
        try:
            self._writer.write(self._seal(text))
            async with asyncio.timeout(ANSWER_S):
                line = await self._reader.readline()
            if not line:
                raise frames.ProtocolError("the connection was closed")
            return frames.read_answer(self._unseal(line))
        except (OSError, ValueError, frames.ProtocolError, frames.Refused) as err:
            raise DaemonUnreachable(f"{self.where}: {words(err) or 'no answer in time'}") from err

    def check(self) -> None:
        """Raises DaemonUnreachable where the other side has gone, which nothing tells who waits."""
        if self._reader.at_eof() or self._reader.exception() is not None:
            raise DaemonUnreachable(f"{self.where}: the connection was closed")

    def _seal(self, text: bytes) -> bytes:
        assert self._session is not None
        return self._session.seal(text)

    def _unseal(self, line: bytes) -> bytes:
        assert self._session is not None
        return self._session.open(line)

    def abort(self) -> None:
        """End it at once; what was not sent is lost."""
        self._writer.transport.abort()

    async def close(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            pass


async def _connected(host: str, port: int) -> socket.socket:
    """A socket that is connected to the first address of ``host`` that takes it; raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)
    for number, (family, _kind, _protocol, _name, place) in enumerate(found, start=1):
        try:
            return await _connect(family, place)
        except OSError:
            if number == len(found):
                raise
    raise OSError(f"{host}: no address")


async def _connect(family: int, place: Any) -> socket.socket:
    for sock, again in source_port.sockets(family):
        try:
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, place)
        except OSError as err:
            sock.close()
            if not (again and source_port.is_taken(err)):
                raise
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise AssertionError("the last socket has any port")


class UnixLink(Link):
    """A connection to colocd's socket on this host: the kernel says who is there."""

    @classmethod
    async def connect(cls, path: Path, trusted: Collection[int]) -> "UnixLink":
        """``trusted``: uids that colocd may run as. Raises DaemonUnreachable."""
        try:
            opening = asyncio.open_unix_connection(path, limit=2**20)
            async with asyncio.timeout(OPEN_S):
                reader, writer = await opening
        except (OSError, TimeoutError) as err:
            text = f"{path}: {words(err) or 'no answer in time'}: {HINT}"
            raise DaemonUnreachable(text) from err
        uid = served_by(writer.get_extra_info("socket"))
        if uid not in trusted:
            writer.close()
            raise DaemonUnreachable(f"{path}: served by uid {uid}, not by SlurmUser")
        return cls(str(path), reader, writer)

    def _seal(self, text: bytes) -> bytes:
        return text + b"\n"

    def _unseal(self, line: bytes) -> bytes:
        return line
