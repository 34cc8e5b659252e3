# SPDX-License-Identifier: Apache-2.0
"""Who may read metrics: by address, and by a token."""

import hmac
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple

Network = IPv4Network | IPv6Network


class Access(NamedTuple):
    """``address``: where it listens; ``allow``: who may connect, () for everybody that can;
    ``token``: what a request must bring, "" for nothing."""

    address: str
    allow: tuple[Network, ...] = ()
    token: str = ""

    def admits(self, peer: str) -> bool:
        """Whether a host may connect."""
        return not self.allow or any(_plain(peer) in one for one in self.allow)

    def knows(self, authorization: str) -> bool:
        """Whether the value of a request's Authorization header is good."""
        given = f"Bearer {self.token}".encode()
        return not self.token or hmac.compare_digest(
            authorization.encode("utf-8", "replace"), given
        )


def networks(allow: Sequence[str]) -> tuple[Network, ...]:
    """The networks (10.0.0.0/8) and addresses of ``allow``; raises ValueError that names a wrong
    one."""
    found = []
    for text in allow:
        try:
            found.append(ip_network(text))
        except ValueError as err:
            raise ValueError(f"allow: {text!r} is no address and no network: {err}") from None
    return tuple(found)


def check(address: str, allow: Sequence[str], with_token: bool) -> None:
    """Raise ValueError where metrics would be open to everybody on a network, or a value is
    wrong."""
    try:
        where = ip_address(address)
    except ValueError:
        raise ValueError(f"address: {address!r} is no IP address") from None
    if not (networks(allow) or with_token or where.is_loopback):
        raise ValueError(
            f"address: {address} is open to other hosts: say who may read by allow or token_file"
        )


def _plain(peer: str) -> IPv4Address | IPv6Address:
    found = ip_address(peer.partition("%")[0])
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found
