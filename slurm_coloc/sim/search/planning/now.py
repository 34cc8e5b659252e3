# SPDX-License-Identifier: Apache-2.0
"""A scene as a problem of lines: what runs stays where it is, what waits goes anywhere."""

import math
from collections.abc import Sequence

from slurm_coloc.core.draw import Draw
from slurm_coloc.sim.search.planning.lists import LATE
from slurm_coloc.sim.search.planning.snapshot import PlanSnapshot
from slurm_coloc.sim.search.schedules.anneal import JOBS
from slurm_coloc.sim.search.schedules.plan import Spot
from slurm_coloc.sim.search.schedules.problem import Problem, Rules, by_node

#: keys of jobs that run are below this one, those of jobs that wait above
RUNNING = -1e9
#: a spread (standard deviation of a logarithm) below which a run time is as good as known
KNOWN = 0.1
#: the largest spread that cases are drawn with
WIDE = 0.6
#: what the first run of a training counts more in the mean end, times the spread of its time: the
#: sooner it runs, the sooner its log or its end tells of all jobs like it
CURIOUS = 3000.0


class Now(Problem):
    """Jobs are numbered as in the scene: first those that wait, then those that run."""

    def __init__(self, scene: PlanSnapshot, waiting: int) -> None:
        count, seats = len(scene.left), range(len(scene.usable))
        self.scene, self.movable = scene, waiting
        self.run, self.submit = scene.left, [0.0] * count
        self.gpus, self.room, self.most = scene.gpus, scene.usable, scene.most
        self.kind = scene.kind
        late = 1.0 + LATE * count / JOBS
        self.weight = [1.0 if share else late for share in scene.share]
        self._be_curious()
        self.need = [[self._need(job, seat) for job in range(count)] for seat in seats]
        self._fit_those_that_run()
        self.seats = [[seat for seat in seats if self._open(job, seat)] for job in range(count)]
        self.nodes = [
            by_node(scene.node, mine, gpus)
            for mine, gpus in zip(self.seats, scene.gpus, strict=True)
        ]
        if (
            scene.bounded
            or scene.budget is not None
            or any(scene.lone)
            or len(set(scene.group)) > 1
        ):
            budget = math.inf if scene.budget is None else scene.budget
            self.rules = Rules(
                scene.lone, scene.group, scene.smact, scene.bound, budget, scene.bounded
            )
        alike: dict[tuple[str, float], int] = {}
        self.alike = [
            alike.setdefault(seat, len(alike))
            for seat in zip(scene.method, scene.fraction, strict=True)
        ]

    def _be_curious(self) -> None:
        """Draw forward one job of each training of which none runs and little is known."""
        scene = self.scene
        alike = list(zip(scene.kind, scene.gpus, strict=True))
        seen = set(alike[self.movable :])
        for job, training in enumerate(alike[: self.movable]):
            if training not in seen and scene.spread[job] > KNOWN:
                seen.add(training)
                self.weight[job] += CURIOUS * scene.spread[job]

    def pinned(self) -> list[Spot]:
        """Of the jobs that run."""
        return [
            Spot(self.scene.seats_of[job], RUNNING + job, len(self.run) * self.gpus[job])
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
            for left_s, spread, off in zip(self.run, self.scene.spread, wrong, strict=True)
        ]

    def ask(self, seat: int, kinds: Sequence[int]) -> list[float]:
        """As the problem says."""
        scene = self.scene
        speeds = scene.combos.of(scene.method[seat], scene.fraction[seat], tuple(kinds))[1]
        return [speeds[kind] for kind in kinds]

    def _need(self, job: int, seat: int) -> int:
        return self.scene.need[job] if self.scene.share[job] else self.room[seat]

    def _open(self, job: int, seat: int) -> bool:
        scene = self.scene
        if self.need[seat][job] > self.room[seat]:
            return False
        return scene.pool[seat] if scene.share[job] else scene.for_whole[seat]

    def _fit_those_that_run(self) -> None:
        """They are there whatever is thought of their memory by now."""
        for seat, jobs in enumerate(self.scene.on):
            free = self.room[seat]
            for job in jobs:
                self.need[seat][job] = min(free, self.need[seat][job])
                free -= self.need[seat][job]
            if self.scene.free[seat] < 0 and jobs:  # nobody may join
                self.need[seat][jobs[0]] += free
