# SPDX-License-Identifier: Apache-2.0
"""Which new connections to colocd's port are let in. No I/O, no clock: the caller brings the time.

Decided from the source address and port alone, before anything is kept or written for a connection.
A source port below 1024 is one that only root of the host over there may take: the nodes' hooks and
agents use one, so that a user of a node cannot use up the rate of the node's root. The port proves
nothing else: who is there is told by the MUNGE credential.
"""

import socket
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

from slurm_coloc.core.rates import Bucket, Rate

RESERVED_PORTS = 1024  # ip(7): the ports below are the superuser's
MOST_ORIGINS = 16_384  # remembered of each kind; what came longest ago is forgotten first
KNOWN_S = 7 * 86400.0  # without an accepted credential an address is a stranger's again


# An honest sweep from a login node makes up to 100 connections a second.
KNOWN = Rate(200.0, 1000.0)  # of one address that authenticated before
STRANGER = Rate(50.0, 100.0)  # of one that did not
FLOOD = 200  # connections over the rate within a second: more is no mistake of an honest host
STRANGERS = Rate(500.0, 1000.0)  # of all that did not: an attacker may have many addresses


class Origin(NamedTuple):
    """Whose rate a connection is counted against. ``network``: an IPv4 address, or the first 64
    bits of an IPv6 address, since a host there chooses the rest as it likes."""

    network: str | bytes
    reserved: bool


def origin(address: str, port: int) -> Origin:
    """Of a peer as accept(2) names it."""
    reserved = port < RESERVED_PORTS
    if ":" not in address:
        return Origin(address, reserved)
    if address.startswith("::ffff:") and "." in address:
        return Origin(address[7:], reserved)
    try:
        network: str | bytes = socket.inet_pton(socket.AF_INET6, address.partition("%")[0])[:8]
    except OSError:
        network = address
    return Origin(network, reserved)


class OfOrigin(Bucket):
    """The bucket of one origin, and what else is remembered of it."""

    __slots__ = ("_refused", "_since_s", "accepted_s")

    def __init__(self, burst: float, now_s: float) -> None:
        super().__init__(burst, now_s)
        self._refused, self._since_s = 0, now_s  # connections over the rate in this second
        self.accepted_s = now_s  # when a credential from there was accepted last

    def refused(self, now_s: float) -> int:
        """Count a connection over the rate; how many there were within this second."""
        if now_s - self._since_s >= 1.0:
            self._refused, self._since_s = 0, now_s
        self._refused += 1
        return self._refused


class Admission:
    """The rates of all origins, and which of them authenticated before."""

    def __init__(self, now_s: float, most: int = MOST_ORIGINS) -> None:
        """Nobody is known. ``most``: origins that are remembered of each kind."""
        self._most = most
        self._known: OrderedDict[Origin, OfOrigin] = OrderedDict()
        self._strangers: OrderedDict[Origin, OfOrigin] = OrderedDict()
        self._all_strangers = Bucket(STRANGERS.burst, now_s)

    def admit(self, one: Origin, now_s: float) -> bool:
        """Whether a new connection from there is let in now."""
        if self.knows(one, now_s):
            return self._known[one].take(KNOWN, now_s)
        bucket = self._strangers.get(one)
        if bucket is None:
            bucket = self._strangers[one] = OfOrigin(STRANGER.burst, now_s)
            self._bound(self._strangers)
        else:
            self._strangers.move_to_end(one)
        return bucket.take(STRANGER, now_s) and self._all_strangers.take(STRANGERS, now_s)

    def floods(self, one: Origin, now_s: float) -> bool:
        """Count a connection that was not let in; whether its origin makes a flood of them."""
        bucket = self._known.get(one) or self._strangers.get(one)
        return bucket is not None and bucket.refused(now_s) > FLOOD

    def knows(self, one: Origin, now_s: float) -> bool:
        """Whether a credential from there was accepted within KNOWN_S."""
        bucket = self._known.get(one)
        return bucket is not None and now_s - bucket.accepted_s < KNOWN_S

    def accepted(self, one: Origin, now_s: float) -> None:
        """A credential from there has been accepted, or its connection has ended just now."""
        bucket = self._known.get(one)
        if bucket is None:
            bucket = self._known[one] = OfOrigin(KNOWN.burst, now_s)
        bucket.accepted_s = now_s
        self._known.move_to_end(one)
        self._strangers.pop(one, None)
        self._bound(self._known)

    def _bound(self, table: OrderedDict[Origin, OfOrigin]) -> None:
        while len(table) > self._most:
            table.popitem(last=False)


T = TypeVar("T", bound=Hashable)


class Places(Generic[T]):
    """Connections whose credential has not been accepted yet, the oldest of each origin first."""

    def __init__(self, most: int, most_of_one: int) -> None:
        """``most``: places of all; ``most_of_one``: of one origin."""
        self._most = most
        self._most_of_one = most_of_one
        self._of: dict[Origin, dict[T, None]] = {}
        self._count = 0

    def enter(self, who: T, one: Origin) -> T | None:
        """Take a place; who loses theirs for it, None where there was room. The oldest of the same
        origin goes first; where all places are taken, the oldest of the origin that has most."""
        same = self._of.setdefault(one, {})
        same[who] = None
        self._count += 1
        if len(same) > self._most_of_one:
            return self._oldest(one)
        if self._count > self._most:
            return self._oldest(max(self._of, key=lambda each: len(self._of[each])))
        return None

    def _oldest(self, one: Origin) -> T:
        first = next(iter(self._of[one]))
        self.leave(first, one)
        return first

    def leave(self, who: T, one: Origin) -> None:
        """Give the place back; nothing where it is lost already."""
        same = self._of.get(one)
        if same is None or who not in same:
            return
        del same[who]
        self._count -= 1
        if not same:
            del self._of[one]
