# SPDX-License-Identifier: Apache-2.0
"""GPUs that are reserved for jobs that wait for whole ones.

A job that joins a shared GPU delays the moment when that GPU is free. Time limits say little about
this moment: a training often ends long before its limit. So as many GPUs as a job for whole GPUs
wants are reserved for it, those expected to be free first, and later jobs join no other job there.
All other GPUs stay open to later jobs, and so does an idle one, as without sharing.
"""

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heapreplace
from itertools import chain

from slurm_coloc.core.place.gpu_slot import INF, GpuSlot, PlaceRequest

#: of an offer, lower is better: the negative number of its GPUs, then when the last one is free
_Rank = tuple[int, tuple[float, int, int]]


class ReservedGpus:
    """The reservations of the waiting jobs so far, in the order of the queue.

    Between two calls of ``add`` jobs may start, none may end: an offer only gets worse.

    ``jobs``: their ids; ``slots``: indexes of the reserved slots.
    """

    def __init__(self) -> None:
        self.jobs: set[int] = set()
        self.slots: set[int] = set()
        self._offers: dict[tuple[int, int], _Offers] = {}

    def add(self, request: PlaceRequest, slots: Sequence[GpuSlot]) -> None:
        """Reserve GPUs among ``slots`` for a job for whole GPUs that cannot start now: on the node
        that has most of what it wants, or on several where no node is so large."""
        key = id(slots), request.gpus
        if key not in self._offers:
            self._offers[key] = _Offers(slots, request.gpus, self.slots)
        best = self._offers[key].best()
        if best:
            self.jobs.add(request.id)
            self.slots.update(slot.index for slot in best)

    def has(self, slot: GpuSlot) -> bool:
        """Whether later jobs may not join the jobs on a slot."""
        return bool(slot.residents) and slot.index in self.slots


class _Offers:
    """What each node offers a job of so many GPUs, the best one first. ``taken``: the indexes of
    the slots that are reserved; it grows."""

    def __init__(self, slots: Sequence[GpuSlot], gpus: int, taken: set[int]) -> None:
        self._slots = slots  # so that its id stays its own
        self._gpus, self._taken = gpus, taken
        self._groups = _groups(slots, gpus)
        self._heap = [
            (_rank(found), number)
            for number, group in enumerate(self._groups)
            if (found := self._left(group))
        ]
        heapify(self._heap)

    def best(self) -> list[GpuSlot]:
        """The slots of the best offer; none where all are reserved."""
        heap = self._heap
        while heap:
            was, number = heap[0]
            found = self._left(self._groups[number])
            if not found:
                heappop(heap)
                continue
            now = _rank(found)
            if now == was:
                return found
            heapreplace(heap, (now, number))  # jobs were put there, or GPUs reserved
        return []

    def _left(self, slots: Iterable[GpuSlot]) -> list[GpuSlot]:
        """The first slots to be free of those that are not reserved yet."""
        left = [slot for slot in slots if slot.index not in self._taken]
        return sorted(left, key=_order)[: self._gpus]


def _groups(slots: Iterable[GpuSlot], gpus: int) -> list[list[GpuSlot]]:
    """The slots for whole GPUs of each node that has so many, else of all nodes together."""
    by_node: dict[int, list[GpuSlot]] = {}
    for slot in slots:
        if slot.for_whole:
            by_node.setdefault(slot.node, []).append(slot)
    groups = [one for one in by_node.values() if len(one) >= gpus]
    everywhere = list(chain(*by_node.values()))
    return groups or ([everywhere] if len(everywhere) >= gpus else [])


def _rank(slots: Sequence[GpuSlot]) -> _Rank:
    return -len(slots), _order(slots[-1])


def _order(slot: GpuSlot) -> tuple[float, int, int]:
    """By the expected time at which it is free, then the number of its jobs."""
    ends = [INF if one.ends_s is None else one.ends_s for one in slot.residents]
    return max(ends, default=-INF), len(ends), slot.index
