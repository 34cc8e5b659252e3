# SPDX-License-Identifier: Apache-2.0
"""A small search over plans: which order of the waiting jobs is done first.

It begins with the plan of the last decision and with orders that are known to be good for
something, and goes on with small changes of the best one. It counts its tries and asks no clock, so
one moment always gives one plan.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from slurm_coloc.core.planning.draw import Draw
from slurm_coloc.core.planning.rollout import FIT, GAIN, LEVEL, Played, Rollout, Scene, Style

#: seconds of the plan's end that one second of the GPUs' mean end is worth: among plans of one end
#: the one that leaves GPUs free earlier
DRY = 0.1
#: and one second of the jobs' mean end: nobody waits for nothing
MEAN = 0.02
#: and one second by which a job of whole GPUs starts later: it must not pay for others' sharing
LATE = 0.5
#: a plan that ends later than it did by this part of what is left: all beginnings are tried again
WORSE = 0.01

STYLES = (
    Style(GAIN, 0),
    Style(GAIN, 1),
    Style(LEVEL, 0),
    Style(LEVEL, 1),
    Style(FIT, 0),
    Style(GAIN, 0, 0.0),
)


@dataclass(frozen=True, slots=True)
class Plan:
    """An order of jobs (their ids) and a style of placing them. ``end_s``: when it would be done,
    on the clock of the decisions."""

    order: tuple[int, ...]
    style: Style
    end_s: float = float("inf")


class Search:
    """For the best plan of one scene. ``ids``: of the waiting jobs. ``seed``: of the changes."""

    def __init__(self, scene: Scene, ids: Sequence[int], seed: int) -> None:
        self._scene, self._ids = scene, ids
        self._draw = Draw(seed)
        self._cost = float("inf")
        self._order: list[int] = list(range(len(ids)))
        self._style = Style()
        self.played = Played(0.0, 0.0, 0.0, 0.0, -1, [])

    def best(self, last: Plan | None, tries: int, now_s: float) -> Plan:
        """The best plan found with so many changes. ``last``: that of the last decision."""
        begins = [(order, style) for order in self._orders() for style in STYLES]
        self._draw.shuffle(begins)
        if last is not None:
            self._go_on(last)
            if now_s + self.played.end_s <= last.end_s + WORSE * self.played.end_s:
                begins = begins[: max(3, tries // 4)]
        for order, style in begins:
            self._try(order, style)
        if len(self._ids) > 1:
            for _ in range(tries):
                self._change()
        return Plan(
            tuple(self._ids[job] for job in self._order), self._style, now_s + self.played.end_s
        )

    def _try(self, order: list[int], style: Style) -> None:
        played = Rollout(self._scene, order, style).play()
        cost = played.end_s + DRY * played.dry_s + MEAN * played.mean_s + LATE * played.late_s
        if cost < self._cost - 1e-6:
            self._cost, self._order, self._style, self.played = cost, order, style, played

    def _orders(self) -> list[list[int]]:
        """As they came; longest, widest, largest and most work first."""
        scene, jobs = self._scene, range(len(self._ids))
        left, gpus, need = scene.left, scene.gpus, scene.need
        if len(self._ids) == 1:
            return [[0]]
        return [
            list(jobs),
            sorted(jobs, key=lambda job: -left[job]),
            sorted(jobs, key=lambda job: (scene.share[job], -gpus[job], -left[job])),
            sorted(jobs, key=lambda job: (-gpus[job], -need[job])),
            sorted(jobs, key=lambda job: -left[job] * scene.smact[job] * gpus[job]),
        ]

    def _go_on(self, last: Plan) -> None:
        """The last plan, new jobs at its end, and by their length."""
        index = {job_id: job for job, job_id in enumerate(self._ids)}
        order = [index[job_id] for job_id in last.order if job_id in index]
        old = set(order)
        new = [job for job in range(len(self._ids)) if job not in old]
        self._try(order + new, last.style)
        if not new:
            return
        left = self._scene.left
        for job in new:
            shorter = (at for at, other in enumerate(order) if left[other] < left[job])
            order.insert(next(shorter, len(order)), job)
        self._try(order, last.style)

    def _change(self) -> None:
        """A small change of the best plan: its style, the job that ends last earlier, one job
        elsewhere, two jobs exchanged; more often near the front, which is what happens next."""
        draw, order, style, count = self._draw, self._order[:], self._style, len(self._ids)
        kind = draw.part()
        if kind < 0.15:
            styles = (
                replace(style, rule=draw.below(3)),
                replace(style, hold=draw.below(3)),
                replace(style, min_gain=(-9.0, -0.05, 0.0, 0.05)[draw.below(4)]),
            )
            style = styles[draw.below(3)]
        elif kind < 0.35 and 0 <= self.played.last < count:
            at = order.index(self.played.last)
            if at:
                order.insert(draw.below(at), order.pop(at))
        elif kind < 0.7:
            job = order.pop(draw.below(count))
            order.insert(int(count * draw.part() ** 2), job)
        else:
            one, other = int(count * draw.part() ** 2), draw.below(count)
            order[one], order[other] = order[other], order[one]
        self._try(order, style)
