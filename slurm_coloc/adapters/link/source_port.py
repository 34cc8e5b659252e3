# SPDX-License-Identifier: Apache-2.0
"""Root's connections to colocd come from a source port that only root of a host can take.

colocd counts them apart from those of the host's users (admission.py), so that a user's flood of
connections does not keep the node's hooks and its agent out. Who is no root, or finds no such port
free, connects from any port. Sources: bindresvport(3), ip(7); NFS takes its ports from 665 on.
"""

import errno
import os
import socket
from collections.abc import Iterator

FIRST, COUNT = 665, 1024 - 665
TRIES = 6

_TAKEN = frozenset({errno.EADDRINUSE, errno.EADDRNOTAVAIL})


def bind(sock: socket.socket) -> bool:
    """Give the unconnected TCP socket a source port of root's; whether it has one now."""
    if os.geteuid() != 0:
        return False
    # A service that wants the port later still gets it: both sockets allow that, as far as the
    # service sets SO_REUSEADDR, which servers do.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    for _ in range(TRIES):
        try:
            sock.bind(("", FIRST + int.from_bytes(os.urandom(2), "big") % COUNT))
        except OSError as err:
            if err.errno not in _TAKEN:
                return False  # the host does not let us: a container, a security module
        else:
            return True
    return False


def sockets(family: int) -> Iterator[tuple[socket.socket, bool]]:
    """TCP sockets to connect with, until one is connected; with each whether it has a port of
    root's, so that another is worth a try where the address is taken (``is_taken``)."""
    for number in range(TRIES + 1):
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        yield sock, number < TRIES and bind(sock)


def is_taken(err: OSError) -> bool:
    """Whether that port has, or a moment ago had, a connection to the same place."""
    return err.errno in _TAKEN


def connected(family: int, place: object, limit_s: float) -> socket.socket:
    """A TCP socket that is connected to ``place`` within ``limit_s`` seconds; raises OSError."""
    for sock, again in sockets(family):
        try:
            sock.settimeout(limit_s)
            sock.connect(place)  # type: ignore[arg-type]
        except OSError as err:
            sock.close()
            if not (again and is_taken(err)):
                raise
        else:
            return sock
    raise AssertionError("the last socket has any port")
