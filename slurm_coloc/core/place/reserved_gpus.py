# SPDX-License-Identifier: Apache-2.0
"""GPUs that are reserved for jobs that wait for whole ones.

A job that joins a shared GPU delays the moment when that GPU is free. Time limits say little about
this moment: a training often ends long before its own. So as many GPUs as a job for whole GPUs
wants are reserved for it, those expected to be free first, and later jobs join no other job there.
All other GPUs stay open to later jobs, and so does an idle one, as it would be without sharing.
"""

from collections.abc import Iterable, Sequence
from itertools import chain

from slurm_coloc.core.place.gpu_slot import INF, GpuSlot, PlaceRequest


class ReservedGpus:
    """What is reserved for the jobs that were found waiting so far, in the order of the queue.

    ``jobs`` and ``slots``: their ids and the indexes of what is reserved.
    """

    def __init__(self) -> None:
        self.jobs: set[int] = set()
        self.slots: set[int] = set()

    def add(self, request: PlaceRequest, slots: Iterable[GpuSlot]) -> None:
        """A job for whole GPUs cannot start now. ``slots``: those that it may get. On the node that
        has most of what it wants; on several where no node is so large."""
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
        """Those that are not reserved yet, in the order in which they become free."""
        return sorted((slot for slot in slots if slot.index not in self.slots), key=_order)

    def has(self, slot: GpuSlot) -> bool:
        """Whether no later job may join those on a slot."""
        return bool(slot.residents) and slot.index in self.slots


def _order(slot: GpuSlot) -> tuple[float, int, int]:
    """When it is expected to be free; of several the one with the fewest jobs."""
    ends = [INF if one.ends_s is None else one.ends_s for one in slot.residents]
    return max(ends, default=-INF), len(ends), slot.index
