# SPDX-License-Identifier: Apache-2.0
"""A small search over plans: where each waiting job goes, and in which order.

It goes on from the plan of the last decision with small changes (planning/schedules), and as long
from a list schedule: what was good for the run times that were believed then is hard to leave by
small changes. It counts its tries and reads no clock, so one moment always gives one plan.
"""

from collections.abc import Mapping, Sequence

from slurm_coloc.core.draw import Draw
from slurm_coloc.planning.lists import STYLES, list_schedule
from slurm_coloc.planning.now import KNOWN, Now
from slurm_coloc.planning.schedules.anneal import Best, anneal, times
from slurm_coloc.planning.schedules.problem import Spot
from slurm_coloc.planning.snapshot import PlanSnapshot

#: list schedules that are tried beside the plan of the last decision
FEW = 6
#: cases of the run times besides the expected ones
CASES = 8

#: the spots of waiting jobs by their ids: what one decision leaves to the next
Spots = Mapping[int, Spot]


class Search:
    """For the best plan of one snapshot. ``ids``: of its jobs, first the ``waiting`` ones.
    ``seed``: of the changes."""

    def __init__(
        self,
        snapshot: PlanSnapshot,
        ids: Sequence[int],
        waiting: int,
        seed: int,
    ) -> None:
        self._snapshot, self._ids, self._waiting = snapshot, ids, waiting
        self._draw = Draw(seed)
        self._now = Now(snapshot, waiting)

    def best(self, last: Spots, tries: int) -> Spots:
        """The best plan found with so many changes. ``last``: that of the last decision."""
        runs = [self._now.run]
        if any(spread > KNOWN for spread in self._snapshot.spread):
            runs += [self._now.case(self._ids, number) for number in range(CASES)]
        pinned = self._now.pinned()
        begins = [self._listed(FEW if last else 5 * len(STYLES))]
        if last:
            begins.append(self._go_on(last))
        each = tries // len(begins)
        found = min(
            [anneal(self._now, runs, spots + pinned, self._draw, each) for spots in begins],
            key=_score,
        )
        self._spots = found.spots
        return dict(zip(self._ids[: self._waiting], found.spots, strict=False))

    def first(self) -> list[tuple[int, tuple[int, ...]]]:
        """What the best plan starts now (id, slots), in its order."""
        start_s, end_s = times(self._now, self._spots)
        begun = [job for job in range(self._waiting) if start_s[job] <= 0.0 < end_s[job]]
        begun.sort(key=lambda job: self._spots[job].key)
        return [(self._ids[job], self._spots[job].slots) for job in begun]

    def _listed(self, most: int) -> list[Spot]:
        """The best list schedule as spots."""
        now = self._now
        played = list_schedule(self._snapshot, self._waiting, self._draw, most)
        spots = [Spot((), 0.0, 0)] * self._waiting
        for place, (job, slots) in enumerate(played.starts):
            spots[job] = Spot(tuple(sorted(slots)), float(place), now.beside(job))
        for job in range(self._waiting):
            if not spots[job].slots:  # the list found no place for it before all was done
                slots = now.some_slots(job, self._draw)
                spots[job] = Spot(slots, float(len(spots) + job), now.beside(job))
        return spots

    def _go_on(self, last: Spots) -> list[Spot]:
        """The last plan; new jobs where there is least work, before the first smaller one."""
        snapshot, now = self._snapshot, self._now
        load = [0.0] * len(now.room)
        found = [last.get(job_id) for job_id in self._ids[: self._waiting]]
        for job, spot in enumerate(found):
            if spot is None or (len(spot.slots) == now.gpus[job] and now.fits(job, spot.slots)):
                continue
            found[job] = None  # it asks for something else than it did
        for job, spot in enumerate([*found, *now.pinned()]):
            for slot in spot.slots if spot else ():
                load[slot] += snapshot.left[job] * snapshot.smact[job]
        end = max((spot.key for spot in last.values()), default=0.0)
        spots: list[Spot] = []
        for job, spot in enumerate(found):
            if spot is None:
                slots = min(now.nodes[job], key=lambda mine: min(load[slot] for slot in mine))
                slots = sorted(slots, key=lambda slot: load[slot])[: now.gpus[job]]
                size = snapshot.left[job] * now.gpus[job]
                smaller = [
                    other.key
                    for one, other in enumerate(found)
                    if other is not None and snapshot.left[one] * now.gpus[one] < size
                ]
                key = min(smaller) - 0.5 if smaller else end + 1.0
                spot = Spot(tuple(sorted(slots)), key + 0.1 * self._draw.part(), now.beside(job))
                for slot in slots:
                    load[slot] += snapshot.left[job] * snapshot.smact[job]
            spots.append(spot)
        return spots


def _score(best: Best) -> float:
    return best.score
