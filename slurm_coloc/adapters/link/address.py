# SPDX-License-Identifier: Apache-2.0
"""IP addresses of node names, looked up beside the event loop, each with a time limit."""

import asyncio
import ipaddress
import socket
import time

from slurm_coloc.adapters.link.limited import limited

KEPT_S = 60.0  # an answer; a failure is kept for
FAILED_S = 5.0
LOOKUP_S = 2.0
MOST = 20_000  # names


def plain(address: str) -> str:
    """An IP address in one spelling, one that IPv6 maps as IPv4; "" where it is none."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    mapped = getattr(found, "ipv4_mapped", None)
    return str(mapped or found)


def is_own(address: str) -> bool:
    """Whether an IP address is this host's own: only such a one can be bound."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


class Names:
    """The addresses of names, remembered for a minute."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, frozenset[str]]] = {}
        self._slots = asyncio.Semaphore(8)

    async def addresses(self, name: str) -> frozenset[str]:
        """Every address of ``name``, none where it cannot be resolved in time."""
        if own := plain(name):
            return frozenset({own})
        until, found = self._known.get(name, (0.0, frozenset()))
        if until > time.monotonic():
            return found
        async with self._slots:
            found = await asyncio.to_thread(resolve, name)
        if len(self._known) >= MOST:
            self._known.clear()
        self._known[name] = (time.monotonic() + (KEPT_S if found else FAILED_S), found)
        return found


def resolve(name: str) -> frozenset[str]:
    """The addresses of ``name``; none where it cannot be resolved in time. Blocks."""

    def found() -> frozenset[str]:
        rows = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        return frozenset(plain(str(one[4][0])) for one in rows) - {""}

    try:
        return limited(found, LOOKUP_S)
    except OSError:  # TimeoutError is one
        return frozenset()
