# SPDX-License-Identifier: Apache-2.0
"""A snapshot as a problem of schedules: jobs that run stay, jobs that wait may go anywhere."""

import math
from collections.abc import Sequence

from slurm_coloc.core.draw import Draw
from slurm_coloc.planning.combos import Way
from slurm_coloc.planning.lists import LATE
from slurm_coloc.planning.schedules.anneal import JOBS
from slurm_coloc.planning.schedules.problem import Problem, Rules, Spot, by_node
from slurm_coloc.planning.snapshot import PlanSnapshot

#: keys of jobs that run are below this one, those of jobs that wait above
RUNNING = -1e9
#: a spread (standard deviation of a logarithm) below which a run time is as good as known
KNOWN = 0.1
#: the largest spread that cases are drawn with
WIDE = 0.6
#: what the first run of a training counts more in the mean end, times the spread of its time: the
#: sooner it runs, the sooner its log or its end shows the time of all jobs like it
CURIOUS = 3000.0


class Now(Problem):
    """Jobs are numbered as in the snapshot: first those that wait, then those that run."""

    def __init__(self, snapshot: PlanSnapshot, waiting: int) -> None:
        count, slots = len(snapshot.left), range(len(snapshot.usable))
        self.snapshot, self.movable = snapshot, waiting
        self.run, self.submit = snapshot.left, [0.0] * count
        self.gpus, self.room, self.most = snapshot.gpus, snapshot.usable, snapshot.most
        self.kind, self.after = snapshot.kind, snapshot.after
        late = 1.0 + LATE * count / JOBS
        self.weight = [1.0 if share else late for share in snapshot.share]
        self._be_curious()
        self.need = [[self._need(job, slot) for job in range(count)] for slot in slots]
        self._fit_those_that_run()
        self.slots = [[slot for slot in slots if self._open(job, slot)] for job in range(count)]
        self.nodes = [
            by_node(snapshot.node, mine, gpus)
            for mine, gpus in zip(self.slots, snapshot.gpus, strict=True)
        ]
        if (
            snapshot.bounded
            or snapshot.budget is not None
            or any(snapshot.lone)
            or len(set(snapshot.group)) > 1
        ):
            budget = math.inf if snapshot.budget is None else snapshot.budget
            self.rules = Rules(
                snapshot.lone,
                snapshot.group,
                snapshot.smact,
                snapshot.bound,
                budget,
                snapshot.bounded,
            )
        alike: dict[Way, int] = {}
        self.alike = [alike.setdefault(way, len(alike)) for way in snapshot.way]

    def _be_curious(self) -> None:
        """Draw forward one job of each training of which none runs and little is known."""
        snapshot = self.snapshot
        alike = list(zip(snapshot.kind, snapshot.gpus, strict=True))
        seen = set(alike[self.movable :])
        for job, training in enumerate(alike[: self.movable]):
            if training not in seen and snapshot.spread[job] > KNOWN:
                seen.add(training)
                self.weight[job] += CURIOUS * snapshot.spread[job]

    def pinned(self) -> list[Spot]:
        """Of the jobs that run."""
        return [
            Spot(self.snapshot.slots_of[job], RUNNING + job, len(self.run) * self.gpus[job])
            for job in range(self.movable, len(self.run))
        ]

    def case(self, ids: Sequence[int], number: int) -> list[float]:
        """Other run times. Each job errs by its spread, in the cases of a pair to opposite sides,
        so that one of them has every job too long; and in the same way at each decision, so that
        plans do not change for nothing."""
        side = 1.0 if number % 2 == 0 else -1.0
        wrong = [side * (-1.0, 1.0)[Draw(job_id * 1009 + number // 2).below(2)] for job_id in ids]
        return [
            left_s * math.exp(min(WIDE, spread) * off)
            for left_s, spread, off in zip(self.run, self.snapshot.spread, wrong, strict=True)
        ]

    def speeds(self, slot: int, kinds: Sequence[int]) -> list[float]:
        """As the problem says."""
        speeds = self.snapshot.combos.of(self.snapshot.way[slot], tuple(kinds))[1]
        return [speeds[kind] for kind in kinds]

    def _need(self, job: int, slot: int) -> int:
        return self.snapshot.need[job] if self.snapshot.share[job] else self.room[slot]

    def _open(self, job: int, slot: int) -> bool:
        snapshot = self.snapshot
        if self.need[slot][job] > self.room[slot] or slot in snapshot.barred[job]:
            return False
        return snapshot.pool[slot] if snapshot.share[job] else snapshot.for_whole[slot]

    def _fit_those_that_run(self) -> None:
        """They are there whatever is thought of their memory by now."""
        for slot, jobs in enumerate(self.snapshot.on):
            free = self.room[slot]
            for job in jobs:
                self.need[slot][job] = min(free, self.need[slot][job])
                free -= self.need[slot][job]
            if self.snapshot.free[slot] < 0 and jobs:  # no job may join
                self.need[slot][jobs[0]] += free
