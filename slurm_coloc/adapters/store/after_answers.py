# SPDX-License-Identifier: Apache-2.0
"""What a submission leaves to do once its answer is on its way: slurmctld does not wait for the
database, which takes 0.3 ms, and now and then the 5 ms of a disk. Nor for its core: colocd, which
goes first there (adapters/realtime.py), pauses until slurmctld has its answer.

Where colocd is killed between the two, the job's mark tells what was decided (flow/watch/adopt.py).
Where the database takes nothing, one share is still given; the next jobs get whole GPUs.
"""

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable

import structlog

from slurm_coloc.errors import ColocError

log = structlog.get_logger()

AGAIN_S = 2.0  # between two tries
PAUSE_S = 0.001


class AfterAnswers:
    """In their order, on the running loop."""

    def __init__(self) -> None:
        self._left: deque[Callable[[], None]] = deque()
        self._failed = False

    def add(self, do: Callable[[], None]) -> None:
        """Do it PAUSE_S later. Raises ColocError while an earlier one fails."""
        if self._failed:
            raise ColocError("the last decision is not recorded yet; see colocd's log", "internal")
        if not self._left:
            asyncio.get_running_loop().call_later(PAUSE_S, self.run)
        self._left.append(do)

    def before_next(self) -> None:
        """Do what is left, so that the next submission finds it done; what failed waits."""
        if not self._failed:
            self.run()

    def run(self) -> None:
        """Do what is left; what fails is tried again."""
        while self._left:
            try:
                self._left[0]()
            except sqlite3.IntegrityError as err:  # the job was seen first, and taken over
                log.warning("record", error=str(err))
            except sqlite3.DatabaseError as err:
                self._failed = True
                log.error("record", error=str(err), result="whole GPUs until it is written")
                asyncio.get_running_loop().call_later(AGAIN_S, self.run)
                return
            except Exception:  # a defect of ours: no second try helps
                log.exception("record", result="the job's mark tells what was decided")
            self._left.popleft()
        self._failed = False
