# SPDX-License-Identifier: Apache-2.0
"""List schedules to begin a search with: a few orders that are known to be good for something, each
placed in a few styles."""

from collections.abc import Iterable

from slurm_coloc.core.draw import Draw
from slurm_coloc.planning.rollout import FIT, GAIN, LEVEL, Played, Rollout, Style
from slurm_coloc.planning.snapshot import PlanSnapshot

#: seconds of the plan's end that one second of the GPUs' mean end is worth: among plans of one end
#: the one that leaves GPUs free earlier
DRY = 0.1
#: and one second of the jobs' mean end: no job waits without a gain
MEAN = 0.02
#: and one second by which a job of whole GPUs starts later: it must not pay for others' sharing
LATE = 0.5

STYLES = (
    Style(GAIN, 0),
    Style(GAIN, 1),
    Style(LEVEL, 0),
    Style(LEVEL, 1),
    Style(FIT, 0),
    Style(GAIN, 0, 0.0),
)


def list_schedule(snapshot: PlanSnapshot, waiting: int, draw: Draw, most: int) -> Played:
    """The best one of all, or of so many that are drawn."""
    ways = [(order, style) for order in _orders(snapshot, waiting) for style in STYLES]
    draw.shuffle(ways)
    return min((Rollout(snapshot, order, style).play() for order, style in ways[:most]), key=_cost)


def _cost(played: Played) -> float:
    return played.end_s + DRY * played.dry_s + MEAN * played.mean_s + LATE * played.late_s


def _orders(snapshot: PlanSnapshot, waiting: int) -> Iterable[list[int]]:
    """As they came; longest, widest, largest and most work first."""
    jobs = range(waiting)
    if waiting == 1:
        return [[0]]
    left, gpus, need = snapshot.left, snapshot.gpus, snapshot.need
    return (
        list(jobs),
        sorted(jobs, key=lambda job: -left[job]),
        sorted(jobs, key=lambda job: (snapshot.share[job], -gpus[job], -left[job])),
        sorted(jobs, key=lambda job: (-gpus[job], -need[job])),
        sorted(jobs, key=lambda job: -left[job] * snapshot.smact[job] * gpus[job]),
    )
