# SPDX-License-Identifier: Apache-2.0
"""The queue of a simulation, and which slots changed since a job was refused.

Looking at every GPU for every waiting job at every event is what makes a simulator slow. A job that
no slot admitted is not admitted by the same slots later, unless one was freed, is no longer
reserved for a job that comes first, or telemetry showed something new; so it is offered those
alone. A job that comes before others now, and did not, is offered all.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice

from slurm_coloc.core.place.gpu_slot import GpuSlot, PlaceRequest
from slurm_coloc.core.place.placing import View
from slurm_coloc.sim.setting import Setting

#: recovered before others, then by priority (highest first), then by arrival
Entry = tuple[int, float, int]


@dataclass(frozen=True, slots=True)
class _Reserved:
    """Slots, by index, that are reserved for the jobs of these ids, and until when; and those that
    no job may join (``alone``)."""

    ids: Collection[int] = ()
    slots: frozenset[int] = frozenset()
    until_s: float = float("-inf")
    alone: frozenset[int] = frozenset()


class Waiting(View):
    """The jobs in the order of the queue, as a policy sees them; it remembers what was refused."""

    def __init__(self, slots: Sequence[GpuSlot], setting: Setting) -> None:
        self._queue: list[tuple[Entry, PlaceRequest]] = []
        super().__init__(
            0.0,
            _Requests(self._queue),
            slots,
            setting.conditions,
            setting.believed or setting.interference,
            depth=setting.depth,
            pooled=any(slot.pool for slot in slots) and not all(slot.pool for slot in slots),
        )
        self._entry: dict[int, Entry] = {}
        self._serial = count()
        # Slots in the order in which they were freed; a refused job remembers how many there were.
        self._freed: list[GpuSlot] = []
        self._refused_at: dict[int, int] = {}
        self._reserved = self._next = _Reserved()

    def __len__(self) -> int:
        return len(self._queue)

    def first(self, number: int) -> Iterator[PlaceRequest]:
        """The first jobs of the queue."""
        return (request for _, request in islice(self._queue, number))

    def add(self, request: PlaceRequest, first: bool = False, priority: float = 0.0) -> None:
        """A job waits; ``first``: before all that were not marked so."""
        entry = (0 if first else 1, -priority, next(self._serial))
        self._entry[request.id] = entry
        insort(self._queue, (entry, request), key=_order)

    def remove(self, request: PlaceRequest, last_slot: int) -> None:
        """A job has started, its last slot being that one."""
        del self._queue[bisect_left(self._queue, self._entry.pop(request.id), key=_order)]
        self._refused_at.pop(request.id, None)
        if request.id in self._reserved.ids:
            self._next = _Reserved()
            self.end_pass()
        self.turn = (last_slot + 1) % len(self.slots)

    def update(self, request: PlaceRequest) -> None:
        """Something else is expected of a job that waits; its place in the queue stays."""
        entry = self._entry[request.id]
        self._queue[bisect_left(self._queue, entry, key=_order)] = (entry, request)
        self._refused_at.pop(request.id, None)

    def rank(self, priority: Callable[[PlaceRequest], float]) -> None:
        """Priorities changed: order the queue anew.

        A job that overtakes one that slots are reserved for is tried again everywhere: it may have
        been refused for that reservation alone.
        """
        # In the old order: the last place in the new one of those with a reservation so far.
        last: Entry = (-1, 0.0, 0)
        for place, ((first, _, serial), request) in enumerate(self._queue):
            self._entry[request.id] = entry = (first, -priority(request), serial)
            self._queue[place] = (entry, request)
            if entry < last:
                self._refused_at.pop(request.id, None)
            if request.id in self._reserved.ids:
                last = max(last, entry)
        self._queue.sort(key=_order)

    def freed(self, slot: GpuSlot) -> None:
        """A slot has more room than before."""
        if slot.host is None or not slot.host.limited:
            self._freed.append(slot)
        else:
            self._freed.extend(self.nodes()[slot.node])

    def reconsider(self) -> None:
        """Telemetry has something new: every slot may admit a refused job now."""
        self._refused_at.clear()

    def hold(
        self,
        ids: Collection[int],
        slots: Collection[int],
        until_s: float,
        alone: Collection[int] = (),
    ) -> None:
        """As the view says. Of several calls in one pass the last counts."""
        self._next = _Reserved(ids, frozenset(slots), until_s, frozenset(alone))

    def end_pass(self) -> bool:
        """A pass over the queue is over. Returns whether another one could find more.

        A job may try a slot again that is no longer reserved, or reserved for longer:
        something shorter could end before.
        """
        last, self._reserved = self._reserved, self._next
        same = last.slots == self._reserved.slots and last.alone == self._reserved.alone
        if same and last.until_s >= self._reserved.until_s:
            return False
        shut = last.slots | last.alone
        self._freed.extend(self.slots[index] for index in sorted(shut))
        return bool(shut)

    def open_to(self, request: PlaceRequest) -> Sequence[GpuSlot]:
        """Slots freed since the job was refused; where it asks for several, all of their nodes."""
        refused_at = self._refused_at.get(request.id)
        freed = len(self._freed)
        if refused_at == freed:
            return ()
        if refused_at is None or freed - refused_at >= len(self.slots):
            return self.slots
        news = {slot.index: slot for slot in self._freed[refused_at:]}.values()
        if request.gpus == 1:
            return list(news)
        if request.gpus > self.largest_node():
            return self.slots
        nodes = {slot.node for slot in news}
        return [slot for node in sorted(nodes) for slot in self.nodes()[node]]

    def refuse(self, request: PlaceRequest) -> None:
        """Nothing admits the job now."""
        self._refused_at[request.id] = len(self._freed)


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
