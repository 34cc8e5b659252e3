# SPDX-License-Identifier: Apache-2.0
"""How often something may happen: token buckets, and lines of a log. No clock: the caller brings
the time, in seconds of one clock that never goes back."""

from collections.abc import Collection
from typing import NamedTuple

KNOWN = 4096  # users and kinds that are remembered


class Rate(NamedTuple):
    """So many a second, and so many at once."""

    a_second: float
    burst: float


class Bucket:
    """A token bucket."""

    __slots__ = ("at_s", "tokens")

    def __init__(self, burst: float, now_s: float) -> None:
        """Full."""
        self.tokens, self.at_s = burst, now_s

    def take(self, rate: Rate, now_s: float) -> bool:
        """Take a token; False where there is none."""
        grown = self.tokens + (now_s - self.at_s) * rate.a_second
        self.tokens, self.at_s = min(rate.burst, grown), now_s
        if self.tokens < 1.0:
            return False
        self.tokens -= 1.0
        return True


class Rates:
    """A bucket a user. ``trusted`` uids have no limit."""

    def __init__(self, rate: Rate, trusted: Collection[int] = ()) -> None:
        """All buckets are full."""
        self._rate, self._trusted = rate, trusted
        self._buckets: dict[int, Bucket] = {}

    def take(self, uid: int, now_s: float) -> float:
        """Take a token of ``uid``: 0.0; where there is none, the seconds until there is one."""
        if uid in self._trusted:
            return 0.0
        if uid not in self._buckets and len(self._buckets) >= KNOWN:
            self._forget_full(now_s)
        bucket = self._buckets.setdefault(uid, Bucket(self._rate.burst, now_s))
        if bucket.take(self._rate, now_s):
            return 0.0
        return (1.0 - bucket.tokens) / self._rate.a_second

    def _forget_full(self, now_s: float) -> None:
        """Drop the buckets that are full again, which are like those of users never seen."""
        full_s = self._rate.burst / self._rate.a_second
        self._buckets = {u: one for u, one in self._buckets.items() if now_s - one.at_s < full_s}


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
