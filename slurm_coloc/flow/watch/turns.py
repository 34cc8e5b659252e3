# SPDX-License-Identifier: Apache-2.0
"""How often a user's questions may cost slurmctld a call."""

import asyncio
import time

# A user's questions cause at most one call in this time (s); so many users are remembered.
FRESH_S = 1.0
ASKERS = 1000


class Turns:
    """The last calls for each user: once in FRESH_S, and separately once for a job that has
    ``ended``."""

    def __init__(self) -> None:
        """Nobody has asked yet."""
        self._asked_s: dict[tuple[int, bool], float] = {}

    def take(self, uid: int, *, ended: bool = False) -> bool:
        """Whether there may be a call now, which then counts."""
        now, key = time.monotonic(), (uid, ended)
        if now - self._asked_s.get(key, 0.0) < FRESH_S:
            return False
        if len(self._asked_s) > ASKERS:
            self._asked_s.clear()
        self._asked_s[key] = now
        return True

    async def wait(self) -> None:
        """Until a user who was refused may ask again."""
        await asyncio.sleep(FRESH_S)
