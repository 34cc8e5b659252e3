# SPDX-License-Identifier: Apache-2.0
"""Playing a found schedule through the simulator's own engine."""

from collections.abc import Sequence
from dataclasses import dataclass

from slurm_coloc.core.place.placing import Start, View

#: An event of the engine and a planned time are one when they differ by no more than this ratio;
#: both come from the same sums in another order.
SAME = 1e-9


@dataclass(frozen=True, slots=True)
class Planned:
    """One job of a schedule: on which slots, and from when to when (s)."""

    job_id: int
    slots: tuple[int, ...]
    start_s: float
    end_s: float


class Follow:
    """A policy that starts each job when and where a schedule says."""

    name = "clairvoyant"

    def __init__(self, schedule: Sequence[Planned]) -> None:
        self._planned = {one.job_id: one for one in schedule}

    def next(self, view: View) -> Start | None:
        """As the protocol says."""
        now_s = view.now_s + SAME * (1.0 + view.now_s)
        due = [request for request in view.queue if self._planned[request.id].start_s <= now_s]
        if not due:
            return None
        request = min(due, key=lambda request: (self._planned[request.id].start_s, request.id))
        return Start(request, tuple(view.slots[slot] for slot in self._planned[request.id].slots))
