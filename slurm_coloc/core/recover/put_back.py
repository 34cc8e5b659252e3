# SPDX-License-Identifier: Apache-2.0
"""The next step of a job that was put back because its node was not fit for it.

It was requeued held while its Prolog still ran, so its script has not begun (tried on 22.05, 24.11
and 26.05: the node stays as it is). Then it is released, and excludes that node for a while where
another can take it. As in recovery each step follows from what Slurm shows now, so a colocd that
stopped between two of them goes on from there.
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
    """``restart``: of the run that was put back; ``elsewhere``: the node is to be excluded;
    ``excluded``, ``delayed``: done already; ``over``: the exclusion has lasted long enough;
    ``base``: the priority that it had, 0 once that is settled."""

    restart: int
    elsewhere: bool
    excluded: bool = False
    delayed: bool = False
    over: bool = False
    base: int = 0


def next_step(view: JobView, goal: Goal) -> Step:
    if view.restarts <= goal.restart:
        # Our order may still be carried out (slurmctld may have been away), or was lost.
        return Step.WAIT if view.completing else Step.LOST
    if view.restarts > goal.restart + 1 or view.state != "PENDING":
        if goal.excluded and not view.ended:
            # Every later run excludes the node too, and only a job that waits can be updated.
            waits = view.state == "PENDING" and not view.completing
            return Step.ADMIT if goal.over and waits else Step.WAIT
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
    """Seconds that a job waits before its next start, after it was put back ``times`` times."""
    return min(first_s * 2.0 ** min(max(times - 1, 0), 30), longest_s)
