# SPDX-License-Identifier: Apache-2.0
"""One connection to colocd, blocking, with one deadline for everything that is asked on it.

For the hooks and the command line: no asyncio, no pydantic. ``Wire`` is what both ways have in
common; UnixWire trusts the kernel's word about the peer, NetWire the session of frames.py.
"""

import json
import os
import socket
import struct
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from slurm_coloc.adapters.link import frames
from slurm_coloc.adapters.link.limited import limited
from slurm_coloc.adapters.link.munge import Munge, MungeError
from slurm_coloc.adapters.link.source_port import connected
from slurm_coloc.core.slurm.hosts import address
from slurm_coloc.errors import DaemonUnreachable

Answer = dict[str, Any]

HINT = "is slurm-coloc.service running?"
QUEUE_S = 1.0  # while the backlog of the Unix socket is full
CONNECT_S = 3.0  # a host that is off gives no answer at all: time is left for the next one


class Me(NamedTuple):
    """Who asks over the network: ``server_uid`` is SlurmUser's, ``node`` the own name or None."""

    server_uid: int
    cluster: str = ""
    node: str | None = None
    munge_socket: Path | None = None

    def hello(self, nonce: str, limit_s: float) -> tuple[bytes, frames.Session]:
        """The client's first line in answer to a greeting's nonce, and the session that it opens.
        Blocks; raises MungeError."""
        hello = frames.Hello(nonce, os.urandom(32), self.cluster, self.node)
        munge = Munge(self.munge_socket)
        made = munge.encode(frames.hello_payload(hello), self.server_uid, limit_s)
        return frames.hello_line(made), frames.Session(hello.key, nonce, server=False)


def served_by(sock: socket.socket) -> int:
    """The uid of the process at the other end of a Unix socket."""
    peer = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", peer)[1])


def words(err: Exception) -> str:
    """What went wrong, of an error of ours or of the system's."""
    return getattr(err, "message", None) or getattr(err, "strerror", None) or str(err)


class Wire:
    """Lines over a socket until a deadline (seconds from now)."""

    def __init__(self, where: str, deadline_s: float) -> None:
        """Nothing is connected yet."""
        self.where = where
        self._limit_s = deadline_s
        self._end = time.monotonic() + deadline_s
        self._rest = bytearray()
        self._sock = socket.socket()

    def _connect(self, family: int, target: object, limit_s: float) -> None:
        self._sock.close()
        self._sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._sock.settimeout(min(self._left(), limit_s))
        self._sock.connect(target)  # type: ignore[arg-type]

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._sock.close()

    def call(self, op: str, **fields: Any) -> Answer:
        """Send one request, return the answer (``ok`` may be false); DaemonUnreachable."""
        return self.exchange(json.dumps({"v": 1, "op": op, **fields}).encode())

    def exchange(self, text: bytes) -> Answer:
        """Send a request's JSON as it stands, return the answer; raises DaemonUnreachable."""
        try:
            self._limit()
            # A colocd that hangs up at once has said why before.
            with suppress(BrokenPipeError, ConnectionResetError):
                self._sock.sendall(self._seal(text))
            return frames.read_answer(self._open(self._line(frames.MAX_ANSWER)))
        except TimeoutError:
            text_ = f"{self.where}: colocd gave no answer within {self._limit_s:.1f} s; see its log"
            raise DaemonUnreachable(text_) from None
        except OSError as err:
            raise DaemonUnreachable(f"{self.where}: {err.strerror or err}: {HINT}") from err
        except (frames.ProtocolError, frames.Refused) as err:
            what = "refused" if isinstance(err, frames.Refused) else "the answer is not colocd's"
            raise DaemonUnreachable(f"{self.where}: {what}: {err.message}") from err

    def _seal(self, text: bytes) -> bytes:
        return text + b"\n"

    def _open(self, line: bytes) -> bytes:
        return line

    def _left(self) -> float:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("deadline passed")
        return left

    def _limit(self) -> None:
        self._sock.settimeout(self._left())

    def _line(self, most: int) -> bytes:
        """The next line with its newline; raises ProtocolError where there is none in ``most``."""
        begin = 0
        while (end := self._rest.find(b"\n", begin)) < 0:
            begin = len(self._rest)
            if begin > most:
                raise frames.ProtocolError("it is too long")
            self._limit()
            piece = self._sock.recv(65536)
            if not piece:
                raise frames.ProtocolError("the connection was closed before the answer")
            self._rest += piece
        line = bytes(self._rest[: end + 1])
        del self._rest[: end + 1]
        return line


class UnixWire(Wire):
    """colocd's socket on this host."""

    def __init__(self, path: Path, deadline_s: float, trusted: Collection[int] = ()) -> None:
        """Connect. ``trusted``: uids that colocd may run as, () for any: then nothing that others
        may not see is sent. Raises DaemonUnreachable."""
        super().__init__(str(path), deadline_s)
        try:
            self._connect_here(path)
            uid = served_by(self._sock)
        except OSError as err:  # a backlog that stays full is EAGAIN here: the caller spools
            self.close()
            raise DaemonUnreachable(f"{path}: {err.strerror or err}: {HINT}") from err
        if trusted and uid not in trusted:
            self.close()
            raise DaemonUnreachable(f"{path}: served by uid {uid}, not by SlurmUser")

    def _connect_here(self, path: Path) -> None:
        """Connect, in the kernel's queue while others fill the backlog: Python's own time limit
        would make it fail at once there (unix(7))."""
        self._sock.close()
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        microseconds = max(1, int(min(self._left(), QUEUE_S) * 1e6))
        limit = struct.pack("@ll", *divmod(microseconds, 1_000_000))
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self._sock.connect(os.fspath(path))


class NetWire(Wire):
    """A colocd on another host; the first request goes along with the credential."""

    def __init__(
        self, target: str, me: Me, deadline_s: float, connect_s: float = CONNECT_S
    ) -> None:
        """Connect to ``host:port`` and make the session; raises DaemonUnreachable, also where
        the other side is no colocd. ``standby`` tells what it says of itself."""
        super().__init__(target, deadline_s)
        try:
            self._reach(target, connect_s)
            greeting = frames.read_greeting(self._line(frames.MAX_HELLO))
            self.standby = greeting.standby
            self._first, self._session = me.hello(greeting.nonce, self._left())
        except (OSError, ValueError, frames.ProtocolError, MungeError) as err:
            self.close()
            raise DaemonUnreachable(f"{target}: {words(err)}") from err

    def _reach(self, target: str, connect_s: float) -> None:
        """Connect to the first address of the name that takes it; raises OSError, ValueError."""
        host, port = address(target)
        end = time.monotonic() + connect_s

        def resolve() -> list[tuple[int, object]]:
            kind = socket.SOCK_STREAM
            return [(one[0], one[4]) for one in socket.getaddrinfo(host or None, port, type=kind)]

        found = limited(resolve, min(self._left(), connect_s))
        for number, (family, place) in enumerate(found, start=1):
            try:
                limit_s = min(self._left(), max(0.01, end - time.monotonic()))
                self._sock.close()
                self._sock = connected(family, place, limit_s)
                break
            except OSError:
                if number == len(found):
                    raise
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _seal(self, text: bytes) -> bytes:
        first, self._first = self._first, b""
        return first + self._session.seal(text)

    def _open(self, line: bytes) -> bytes:
        return self._session.open(line)
