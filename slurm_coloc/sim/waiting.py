# SPDX-License-Identifier: Apache-2.0
"""The queue of a simulation, and which seats changed since a job was refused.

Looking at every GPU for every waiting job at every event is what makes a simulator slow. A job that
no seat admitted is not admitted by the same seats later, unless one was freed or telemetry showed
something new; so it is shown those alone.
"""

from bisect import insort
from collections.abc import Iterator, Sequence
from itertools import count, islice

from slurm_coloc.core.interference import Interference
from slurm_coloc.core.placing import Ask, Conditions, Seat, View


class Waiting:
    """Jobs in the order of the queue: recovered ones first, then by arrival."""

    def __init__(
        self,
        seats: Sequence[Seat],
        conditions: Conditions,
        interference: Interference,
        depth: int,
    ) -> None:
        self._seats = seats
        self._conditions, self._interference, self._depth = conditions, interference, depth
        self._queue: list[tuple[int, int, Ask]] = []
        self._position: dict[int, tuple[int, int]] = {}
        self._serial = count()
        self._turn = 0
        # Seats in the order in which they were freed; a job remembers how far it has seen them.
        self._freed: list[Seat] = []
        self._seen: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._queue)

    def first(self, number: int) -> Iterator[Ask]:
        """The first jobs of the queue."""
        return (ask for _, _, ask in islice(self._queue, number))

    def add(self, ask: Ask, first: bool = False) -> None:
        """A job waits; ``first``: before all that were not marked so."""
        entry = (0 if first else 1, next(self._serial))
        self._position[ask.id] = entry
        insort(self._queue, (*entry, ask), key=lambda item: item[:2])

    def remove(self, ask: Ask, last_seat: int) -> None:
        """A job has started, its last seat being that one."""
        entry = self._position.pop(ask.id)
        lo, hi = 0, len(self._queue)
        while lo < hi:
            middle = (lo + hi) // 2
            if self._queue[middle][:2] < entry:
                lo = middle + 1
            else:
                hi = middle
        del self._queue[lo]
        self._seen.pop(ask.id, None)
        self._turn = last_seat + 1

    def freed(self, seat: Seat) -> None:
        """A seat has more room than before."""
        self._freed.append(seat)

    def look_again(self) -> None:
        """Telemetry has something new: every seat is worth a look again."""
        self._seen.clear()

    def view(self, now_s: float) -> View:
        """What a policy sees now."""
        return _View(
            now_s,
            _Asks(self._queue),
            self._seats,
            self._conditions,
            self._interference,
            self._turn % len(self._seats),
            self._depth,
            self,
        )

    def open_to(self, ask: Ask) -> Sequence[Seat]:
        """Seats freed since the job was refused; all of them where it asks for several."""
        seen = self._seen.get(ask.id)
        if seen is None:
            return self._seats
        if seen == len(self._freed):
            return ()
        if ask.gpus > 1:
            return self._seats
        return list({seat.index: seat for seat in self._freed[seen:]}.values())

    def refuse(self, ask: Ask) -> None:
        """Nothing admits the job now."""
        self._seen[ask.id] = len(self._freed)


class _Asks(Sequence[Ask]):
    """The queue without its keys."""

    def __init__(self, queue: list[tuple[int, int, Ask]]) -> None:
        self._queue = queue

    def __len__(self) -> int:
        return len(self._queue)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        if isinstance(index, slice):
            return [item[2] for item in self._queue[index]]
        return self._queue[index][2]

    def __iter__(self) -> Iterator[Ask]:
        return (item[2] for item in self._queue)


class _View(View):
    """A view that remembers what it refused."""

    def __init__(self, *values: object) -> None:
        *fields, self._waiting = values
        super().__init__(*fields)  # type: ignore[arg-type]

    def open_to(self, ask: Ask) -> Sequence[Seat]:
        return self._waiting.open_to(ask)  # type: ignore[attr-defined,no-any-return]

    def refuse(self, ask: Ask) -> None:
        self._waiting.refuse(ask)  # type: ignore[attr-defined]
