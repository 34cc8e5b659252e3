# SPDX-License-Identifier: Apache-2.0
"""A job that was put back because its node was not fit for it: which step comes next.

It was requeued held while its Prolog still ran, so its script has not begun (tried on 22.05, 24.11
and 26.05: the node stays as it is). From there it goes back into the queue, past that node for a
while where it has somewhere else to go. As in recovery each step follows from what Slurm shows
now, so a colocd that died between two of them goes on where the job stands.
"""

from dataclasses import dataclass
from enum import StrEnum

from slurm_coloc.core.slurm.job import JobView


class Step(StrEnum):
    """The next thing to do to a job that was put back."""

    WAIT = "wait"
    EXCLUDE = "exclude"  # the node
    DELAY = "delay"  # a start time of ours: Slurm's own would be two minutes away, or at once
    RELEASE = "release"
    PLACE = "place"  # give back its priority: a requeue takes a job's age
    ADMIT = "admit"  # the node again
    DONE = "done"
    LOST = "lost"  # it started, or somebody else acted on it: leave it to them


@dataclass(frozen=True, slots=True)
class Goal:
    """``restart``: the run that was put back; ``elsewhere``: the node is to be excluded meanwhile;
    ``excluded``, ``delayed``: what has been done; ``over``: the exclusion has lasted long enough;
    ``base``: the priority that it had, 0 where that is settled.
    """

    restart: int
    elsewhere: bool
    excluded: bool = False
    delayed: bool = False
    over: bool = False
    base: int = 0


def next_step(view: JobView, goal: Goal) -> Step:
    """The step that brings the job as Slurm shows it nearer to ``goal``."""
    if view.restarts <= goal.restart:
        # Our order is on its way (slurmctld may have been away), or it was never carried out.
        return Step.WAIT if view.completing else Step.LOST
    if view.restarts > goal.restart + 1 or view.state != "PENDING":
        return Step.WAIT if view.completing else Step.DONE
    if view.completing:
        return Step.WAIT
    if goal.elsewhere and not goal.excluded:
        return Step.EXCLUDE
    if not goal.delayed:
        return Step.DELAY
    if view.held_by_requeue:
        return Step.RELEASE
    if 0 < view.priority < goal.base:
        return Step.PLACE
    if not goal.excluded:
        return Step.DONE
    return Step.ADMIT if goal.over else Step.WAIT


def pause_s(times: int, first_s: float, longest_s: float) -> float:
    """How long a job waits before it is tried again, after it was put back ``times`` times."""
    return min(first_s * 2.0 ** min(max(times - 1, 0), 30), longest_s)
