# SPDX-License-Identifier: Apache-2.0
"""Who asks colocd something, how many connections each may have, and how often each may ask."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

MAX_CONNECTIONS = 256  # of all who are not trusted
MAX_A_USER = 8  # connections of one of them: nobody may keep the others out
KNOWN = 4096  # users and kinds that are remembered


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


class Rates:
    """A token bucket a user: ``burst`` at once, then ``per_s`` in a second. ``trusted`` uids have
    no limit."""

    def __init__(self, per_s: float, burst: float, trusted: Collection[int] = ()) -> None:
        """All buckets are full."""
        self._per_s, self._burst = per_s, burst
        self._trusted = trusted
        self._left: dict[int, tuple[float, float]] = {}  # tokens, and when (s) that was so

    def take(self, uid: int, now_s: float) -> float:
        """Take a token of ``uid``: 0.0; where there is none, the seconds until there is one."""
        if uid in self._trusted:
            return 0.0
        left, at_s = self._left.get(uid, (self._burst, now_s))
        left = min(self._burst, left + (now_s - at_s) * self._per_s)
        if left < 1.0:
            self._left[uid] = left, now_s
            return (1.0 - left) / self._per_s
        if len(self._left) >= KNOWN:
            self._forget_full(now_s)
        self._left[uid] = left - 1.0, now_s
        return 0.0

    def _forget_full(self, now_s: float) -> None:
        """Drop the buckets that are full again, which are like those of users never seen."""
        full_s = self._burst / self._per_s
        self._left = {uid: one for uid, one in self._left.items() if now_s - one[1] < full_s}


class LogLimit:
    """Which lines go to a log that users can cause: one of a kind in ``pause_s`` seconds."""

    def __init__(self, pause_s: float = 1.0) -> None:
        """Nothing was logged yet."""
        self._pause_s = pause_s
        self._kinds: dict[str, tuple[float, int]] = {}  # when logged last (s), how many since

    def take(self, kind: str, now_s: float) -> int | None:
        """None: leave this line out. A number: log it, and say that so many were left out."""
        if kind not in self._kinds and len(self._kinds) >= KNOWN:
            self._kinds.clear()
        at_s, left_out = self._kinds.get(kind, (now_s - self._pause_s, 0))
        if now_s - at_s < self._pause_s:
            self._kinds[kind] = at_s, left_out + 1
            return None
        self._kinds[kind] = now_s, 0
        return left_out
