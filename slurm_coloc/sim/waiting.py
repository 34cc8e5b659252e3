# SPDX-License-Identifier: Apache-2.0
"""The queue of a simulation, and which seats changed since a job was refused.

Looking at every GPU for every waiting job at every event is what makes a simulator slow. A job that
no seat admitted is not admitted by the same seats later, unless one was freed, is no longer kept
for a job that comes first, or telemetry showed something new; so it is shown those alone.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, islice

from slurm_coloc.core.place.placing import GpuSlot, PlaceRequest, View
from slurm_coloc.sim.setting import Setting

#: recovered before others, then by priority (highest first), then by arrival
Entry = tuple[int, float, int]


@dataclass(frozen=True, slots=True)
class _Reserved:
    """Seats, by index, that are kept for the jobs of these ids, and until when; and those that
    nobody may join (``alone``)."""

    ids: Collection[int] = ()
    seats: frozenset[int] = frozenset()
    until_s: float = float("-inf")
    alone: frozenset[int] = frozenset()


class Waiting:
    """Jobs in the order of the queue."""

    def __init__(self, seats: Sequence[GpuSlot], setting: Setting) -> None:
        self._seats = seats
        self._queue: list[tuple[Entry, PlaceRequest]] = []
        self._entry: dict[int, Entry] = {}
        self._serial = count()
        self._turn = 0
        # Seats in the order in which they were freed; a job remembers how far it has seen them.
        self._freed: list[GpuSlot] = []
        self._seen: dict[int, int] = {}
        self._kept = self._next = _Reserved()
        self._view = _View(
            0.0,
            _Requests(self._queue),
            seats,
            setting.conditions,
            setting.believed or setting.interference,
            depth=setting.depth,
            pooled=any(seat.pool for seat in seats) and not all(seat.pool for seat in seats),
            waiting=self,
        )
        self._by_node, self._largest = self._view.nodes(), self._view.largest_node()

    def __len__(self) -> int:
        return len(self._queue)

    def first(self, number: int) -> Iterator[PlaceRequest]:
        """The first jobs of the queue."""
        return (ask for _, ask in islice(self._queue, number))

    def add(self, ask: PlaceRequest, first: bool = False, priority: float = 0.0) -> None:
        """A job waits; ``first``: before all that were not marked so."""
        entry = (0 if first else 1, -priority, next(self._serial))
        self._entry[ask.id] = entry
        insort(self._queue, (entry, ask), key=_order)

    def remove(self, ask: PlaceRequest, last_seat: int) -> None:
        """A job has started, its last seat being that one."""
        del self._queue[bisect_left(self._queue, self._entry.pop(ask.id), key=_order)]
        self._seen.pop(ask.id, None)
        if ask.id in self._kept.ids:
            self._next = _Reserved()
            self.looked()
        self._turn = last_seat + 1

    def update(self, ask: PlaceRequest) -> None:
        """Something else is expected of a job that waits; its place in the queue stays."""
        entry = self._entry[ask.id]
        self._queue[bisect_left(self._queue, entry, key=_order)] = (entry, ask)
        self._seen.pop(ask.id, None)

    def rank(self, priority: Callable[[PlaceRequest], float]) -> None:
        """Priorities changed: order the queue anew."""
        for place, ((first, _, serial), ask) in enumerate(self._queue):
            self._entry[ask.id] = entry = (first, -priority(ask), serial)
            self._queue[place] = (entry, ask)
        self._queue.sort(key=_order)

    def freed(self, seat: GpuSlot) -> None:
        """A seat has more room than before."""
        if seat.host is None or not seat.host.limited:
            self._freed.append(seat)
        else:
            self._freed.extend(self._by_node[seat.node])

    def look_again(self) -> None:
        """Telemetry has something new: every seat is worth a look again."""
        self._seen.clear()

    def view(self, now_s: float) -> View:
        """What a policy sees now."""
        self._view.now_s = now_s
        self._view.turn = self._turn % len(self._seats)
        return self._view

    def hold(
        self, ids: Collection[int], seats: frozenset[int], until_s: float, alone: frozenset[int]
    ) -> None:
        """These seats are kept for the first jobs so long. Said several times in one look, the last
        one counts."""
        self._next = _Reserved(ids, seats, until_s, alone)

    def looked(self) -> bool:
        """A look is over: whether another one could find more.

        A job that was kept off a seat may try it again when it is kept no more, or longer:
        something shorter could end before.
        """
        last, self._kept = self._kept, self._next
        same = last.seats == self._kept.seats and last.alone == self._kept.alone
        if same and last.until_s >= self._kept.until_s:
            return False
        shut = last.seats | last.alone
        self._freed.extend(self._seats[index] for index in sorted(shut))
        return bool(shut)

    def open_to(self, ask: PlaceRequest) -> Sequence[GpuSlot]:
        """Seats freed since the job was refused; where it asks for several, all of their nodes."""
        seen = self._seen.get(ask.id)
        freed = len(self._freed)
        if seen == freed:
            return ()
        if seen is None or freed - seen >= len(self._seats):
            return self._seats
        news = {seat.index: seat for seat in self._freed[seen:]}.values()
        if ask.gpus == 1:
            return list(news)
        if ask.gpus > self._largest:
            return self._seats
        nodes = {seat.node for seat in news}
        return [seat for node in sorted(nodes) for seat in self._by_node[node]]

    def refuse(self, ask: PlaceRequest) -> None:
        """Nothing admits the job now."""
        self._seen[ask.id] = len(self._freed)


def _order(item: tuple[Entry, PlaceRequest]) -> Entry:
    return item[0]


class _Requests(Sequence[PlaceRequest]):
    """The queue without its keys."""

    def __init__(self, queue: list[tuple[Entry, PlaceRequest]]) -> None:
        self._queue = queue

    def __len__(self) -> int:
        return len(self._queue)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        if isinstance(index, slice):
            return [item[1] for item in self._queue[index]]
        return self._queue[index][1]

    def __iter__(self) -> Iterator[PlaceRequest]:
        return (item[1] for item in self._queue)


@dataclass(slots=True)
class _View(View):
    """A view that remembers what it refused."""

    waiting: Waiting = field(kw_only=True)

    def open_to(self, ask: PlaceRequest) -> Sequence[GpuSlot]:
        return self.waiting.open_to(ask)

    def refuse(self, ask: PlaceRequest) -> None:
        self.waiting.refuse(ask)

    def hold(
        self,
        ids: Collection[int],
        seats: Collection[int],
        until_s: float,
        alone: Collection[int] = (),
    ) -> None:
        self.waiting.hold(ids, frozenset(seats), until_s, frozenset(alone))
