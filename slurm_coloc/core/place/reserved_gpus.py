# SPDX-License-Identifier: Apache-2.0
"""GPUs that are reserved for jobs that wait for whole ones.

A job that joins a shared GPU delays the moment when that GPU is free. Time limits say little about
this moment: a training often ends long before its limit. So as many GPUs as a job for whole GPUs
wants are reserved for it, those expected to be free first, and later jobs join no other job there.
All other GPUs stay open to later jobs, and so does an idle one, as without sharing.
"""

from collections.abc import Iterable, Sequence
from itertools import chain

from slurm_coloc.core.place.gpu_slot import INF, GpuSlot, PlaceRequest


class ReservedGpus:
    """The reservations of the waiting jobs so far, in the order of the queue.

    ``jobs``: their ids; ``slots``: indexes of the reserved slots.
    """

    def __init__(self) -> None:
        self.jobs: set[int] = set()
        self.slots: set[int] = set()

    def add(self, request: PlaceRequest, slots: Iterable[GpuSlot]) -> None:
        """Reserve GPUs among ``slots`` for a job for whole GPUs that cannot start now: on the node
        that has most of what it wants, or on several where no node is so large."""
        by_node: dict[int, list[GpuSlot]] = {}
        for slot in slots:
            if slot.for_whole:
                by_node.setdefault(slot.node, []).append(slot)
        groups: Sequence[Sequence[GpuSlot]] = [
            one for one in by_node.values() if len(one) >= request.gpus
        ]
        if not groups:
            everywhere = list(chain(*by_node.values()))
            groups = [everywhere] if len(everywhere) >= request.gpus else []
        offers = [found for one in groups if (found := self._left(one)[: request.gpus])]
        if offers:
            best = min(offers, key=lambda found: (-len(found), _order(found[-1])))
            self.jobs.add(request.id)
            self.slots.update(slot.index for slot in best)

    def _left(self, slots: Iterable[GpuSlot]) -> list[GpuSlot]:
        """Slots that are not reserved yet, in the order in which they become free."""
        return sorted((slot for slot in slots if slot.index not in self.slots), key=_order)

    def has(self, slot: GpuSlot) -> bool:
        """Whether later jobs may not join the jobs on a slot."""
        return bool(slot.residents) and slot.index in self.slots


def _order(slot: GpuSlot) -> tuple[float, int, int]:
    """By the expected time at which it is free, then the number of its jobs."""
    ends = [INF if one.ends_s is None else one.ends_s for one in slot.residents]
    return max(ends, default=-INF), len(ends), slot.index
