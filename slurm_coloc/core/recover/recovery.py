# SPDX-License-Identifier: Apache-2.0
"""Recovery of a job that is put back (core/recover/next_try says whether): which step comes next.

The steps and their order were tried on 22.05, 24.11, 25.11 and 26.05: a finished job cannot be
updated, so it is requeued held first; priority cannot be set while it is held; after a requeue it
would wait about two minutes (BeginTime) unless its start time is set. Each step is found from what
Slurm shows *now*, so a colocd that died between two of them goes on where the job stands, and no
step is done twice.
"""

from dataclasses import dataclass
from enum import StrEnum

from slurm_coloc.core.slurm.gres import same_gres
from slurm_coloc.core.slurm.job import JobView


class Step(StrEnum):
    """The next thing to do to a job that is being recovered."""

    WAIT = "wait"
    REQUEUE_HOLD = "requeue-hold"
    SET_GRES = "set-gres"
    EXCLUDE = "exclude"  # the node where others ended it
    RELEASE = "release"
    RAISE = "raise"
    DONE = "done"
    LOST = "lost"  # somebody else acted on the job: leave it to them


@dataclass(frozen=True, slots=True)
class Goal:
    """``restart``: the run that failed; ``tres``: the request of the next one as
    core/slurm/gres.gpu_request writes it; ``raised``: whether priority and start time have been
    set; ``ours``: whether we requeued it; ``avoid``: whether a node is to be excluded, and is not
    yet.
    """

    restart: int
    tres: str
    raised: bool = False
    ours: bool = True
    avoid: bool = False


def next_step(view: JobView, goal: Goal) -> Step:
    """The step that brings the job as Slurm shows it nearer to ``goal``."""
    if view.restarts == goal.restart:
        if view.state == "FAILED":
            # While it is COMPLETING too: then no job that depends on it sees it fail.
            return Step.REQUEUE_HOLD
        # A slurmctld that died before it had saved the job's end shows it running or waiting still,
        # and learns from the node or by a second run how it ended.
        return Step.LOST if view.ended else Step.WAIT
    if view.restarts < goal.restart:
        return Step.LOST  # another job under the same id
    if view.state == "CANCELLED" and not same_gres(view.tres, goal.tres):
        return Step.LOST
    if view.restarts > goal.restart + 1 or view.state != "PENDING":
        # It runs again, or it ran again: what matters is done, or the owner requeued it himself.
        return Step.DONE
    if view.completing:
        return Step.WAIT
    if not same_gres(view.tres, goal.tres):
        return Step.SET_GRES
    if not goal.ours:
        return Step.DONE  # its owner put it back: hold, start and priority are his
    if goal.avoid:
        return Step.EXCLUDE
    if view.held:
        return Step.RELEASE
    return Step.DONE if goal.raised else Step.RAISE
