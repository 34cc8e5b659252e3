# SPDX-License-Identifier: Apache-2.0
"""GPUs that are kept for jobs that wait for whole ones.

Whoever joins a shared GPU puts off the moment when it is free. Time limits say little about that
moment: a training often ends long before its own. So each job that waits for whole GPUs has as many
kept as it wants, those expected to be free first, and those that come behind it join nobody there.
All other GPUs stay open to them, and an idle one is theirs as it would be without sharing.
"""

from collections.abc import Iterable, Sequence
from itertools import chain

from slurm_coloc.core.place.gpu_slot import INF
from slurm_coloc.core.place.placing import GpuSlot, PlaceRequest


class ReservedGpus:
    """What is kept for the jobs that were found waiting so far, in the order of the queue.

    ``jobs`` and ``seats``: their ids and the indexes of what is kept.
    """

    def __init__(self) -> None:
        self.jobs: set[int] = set()
        self.seats: set[int] = set()

    def add(self, ask: PlaceRequest, seats: Iterable[GpuSlot]) -> None:
        """A job for whole GPUs cannot start now. ``seats``: those that it may get. On the node that
        has most of what it wants; on several where no node is so large."""
        by_node: dict[int, list[GpuSlot]] = {}
        for seat in seats:
            if seat.for_whole:
                by_node.setdefault(seat.node, []).append(seat)
        groups: Sequence[Sequence[GpuSlot]] = [
            one for one in by_node.values() if len(one) >= ask.gpus
        ]
        if not groups:
            everywhere = list(chain(*by_node.values()))
            groups = [everywhere] if len(everywhere) >= ask.gpus else []
        offers = [found for one in groups if (found := self._left(one)[: ask.gpus])]
        if offers:
            best = min(offers, key=lambda found: (-len(found), _order(found[-1])))
            self.jobs.add(ask.id)
            self.seats.update(seat.index for seat in best)

    def _left(self, seats: Iterable[GpuSlot]) -> list[GpuSlot]:
        """Those that are not kept yet, in the order in which they become free."""
        return sorted((seat for seat in seats if seat.index not in self.seats), key=_order)

    def has(self, seat: GpuSlot) -> bool:
        """Whether nobody who comes behind may join those on a seat."""
        return bool(seat.residents) and seat.index in self.seats


def _order(seat: GpuSlot) -> tuple[float, int, int]:
    """When it is expected to be free; of several the one with the fewest jobs."""
    ends = [INF if one.ends_s is None else one.ends_s for one in seat.residents]
    return max(ends, default=-INF), len(ends), seat.index
