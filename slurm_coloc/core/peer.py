# SPDX-License-Identifier: Apache-2.0
"""Who asks colocd something, and how many connections each may have."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

MAX_CONNECTIONS = 256  # of all who are not trusted
MAX_A_USER = 8  # connections of one of them: nobody may keep the others out


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


class Connections:
    """The open connections of ordinary users; ``trusted`` uids are always let in."""

    def __init__(self, trusted: Collection[int]) -> None:
        """None is open yet."""
        self._trusted = trusted
        self._open: Counter[int] = Counter()

    def enter(self, uid: int) -> bool:
        """Take a place for a connection of ``uid``; False where there is none."""
        if uid in self._trusted:
            return True
        if self._open[uid] >= MAX_A_USER or self._open.total() >= MAX_CONNECTIONS:
            return False
        self._open[uid] += 1
        return True

    def leave(self, uid: int) -> None:
        """Give the place back."""
        if uid not in self._trusted:
            self._open[uid] -= 1
            self._open += Counter()  # drops the zeros
