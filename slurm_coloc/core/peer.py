# SPDX-License-Identifier: Apache-2.0
"""Who asks colocd something."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Peer:
    """``uid`` is the kernel's word on the Unix socket, MUNGE's over the network (``remote``).

    ``address`` is a remote peer's IP address, ``node`` the node that it says it is: to be believed
    only where flow/nodes/agents.py has found that node at that address.
    """

    uid: int
    pid: int = 0
    remote: bool = False
    address: str = ""
    node: str | None = None
    cluster: str = ""
