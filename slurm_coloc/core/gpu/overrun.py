# SPDX-License-Identifier: Apache-2.0
"""When a job holds more of a GPU than it was promised: rules only, no I/O.

Of each process one CUDA context counts as nobody's: what it holds beyond a context is the job's
own use. A process that holds less than a context has only what it holds, so that empty processes
make no room. An overrun is what the job's own processes hold beyond their contexts above its
promise, in IN_A_ROW samples one after the other; it is over after as many samples within the
promise, and at once where the job holds nothing any more.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple

#: of samples, one a second
IN_A_ROW = 3
#: seconds between two samples of a row: where one is missing the row begins anew
NEAR_S = 3.0

State = Literal["begun", "over"]


def beyond_contexts(held_mib: Iterable[int], context_mib: int) -> int:
    """MiB that processes hold beyond a context of ``context_mib`` each."""
    return sum(max(0, mib - context_mib) for mib in held_mib)


class Change(NamedTuple):
    """An overrun that began or is over. ``held_mib``: of all processes of the job, at its begin,
    or the most while it lasted."""

    state: State
    since_s: float
    held_mib: int
    promised_mib: int


class Watch:
    """One run on one GPU. ``now``: the overrun that lasts, None without one."""

    def __init__(self) -> None:
        self.now: Change | None = None
        self._first_s = self._last_s = 0.0
        self._above = self._within = 0

    def see(
        self, at_s: float, held_mib: Iterable[int], promised_mib: int, context_mib: int
    ) -> Change | None:
        """Take a sample: what each process of the job holds here. Returns what has changed."""
        each = list(held_mib)
        held = sum(each)
        if at_s - self._last_s > NEAR_S:
            self._above = self._within = 0
        self._last_s = at_s
        if beyond_contexts(each, context_mib) > promised_mib:
            self._above, self._within = self._above + 1, 0
        else:
            self._above, self._within = 0, self._within + 1
        if self._above == 1:
            self._first_s = at_s
        if self.now is None:
            if self._above < IN_A_ROW:
                return None
            self.now = Change("begun", self._first_s, held, promised_mib)
            return self.now
        self.now = self.now._replace(held_mib=max(self.now.held_mib, held))
        if held and self._within < IN_A_ROW:
            return None
        return self.end()

    def end(self) -> Change | None:
        """The overrun that lasted is over; None where there was none."""
        over, self.now = self.now, None
        return over and over._replace(state="over")


def words(change: Change, uuid: str) -> str:
    """What has changed, for people."""
    held, promised = gib(change.held_mib), gib(change.promised_mib)
    if change.state == "over":
        return f"no longer above its promise on {uuid}: it held {held} of {promised} at most"
    return f"holds {held} on {uuid}, {promised} were promised"


def gib(mib: int) -> str:
    """For people."""
    return f"{mib / 1024:.1f} GiB"
