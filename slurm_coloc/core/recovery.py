# SPDX-License-Identifier: Apache-2.0
"""Recovery after a GPU out-of-memory: whether, and which step comes next.

The steps and their order were tried on 22.05, 24.11, 25.11 and 26.05: a finished job cannot be
updated, so it is requeued held first; priority cannot be set while it is held; after a requeue it
would wait about two minutes (BeginTime) unless its start time is set. Each step is found from what
Slurm shows *now*, so a colocd that died between two of them goes on where the job stands, and no
step is done twice.
"""

from dataclasses import dataclass
from enum import StrEnum

from slurm_coloc.core.gres import same_gres
from slurm_coloc.core.job import JobView
from slurm_coloc.core.outcome import Outcome


class Verdict(StrEnum):
    """What recovery does about an ended run."""

    REQUEUE = "requeue"
    NOT_OURS = "not-ours"  # another cause than GPU memory, or a job that was not collocated
    SWITCHED_OFF = "switched-off"
    NO_REQUEUE = "no-requeue"  # the user's own --no-requeue
    JOB_CAP = "job-cap"
    USER_CAP = "user-cap"
    CLUSTER_CAP = "cluster-cap"


@dataclass(frozen=True, slots=True)
class Caps:
    """Most recoveries of one job, and of one user and the cluster in 24 hours."""

    per_job: int = 1
    per_user_day: int = 50
    per_day: int = 500


@dataclass(frozen=True, slots=True)
class Tally:
    """Recoveries so far, counted as Caps counts them."""

    job: int = 0
    user_day: int = 0
    day: int = 0


def judge(
    outcome: Outcome,
    *,
    collocated: bool,
    may_requeue: bool,
    enabled: bool,
    tally: Tally,
    caps: Caps,
) -> Verdict:
    """Whether a run that ended so is requeued on a whole GPU."""
    if outcome is not Outcome.OOM_GPU or not collocated:
        return Verdict.NOT_OURS
    if not enabled:
        return Verdict.SWITCHED_OFF
    if not may_requeue:
        return Verdict.NO_REQUEUE
    if tally.job >= caps.per_job:
        return Verdict.JOB_CAP
    if tally.user_day >= caps.per_user_day:
        return Verdict.USER_CAP
    if tally.day >= caps.per_day:
        return Verdict.CLUSTER_CAP
    return Verdict.REQUEUE


# Slurm keeps 0 for held jobs and the values above this one for its own marks (slurm.h).
HIGHEST_PRIORITY = 2**32 - 16


def raised_priority(present: int, configured: int) -> int:
    """A priority that prefers a job whose present one is ``present``.

    Under priority/multifactor present values are small and ``configured`` is far above; under
    priority/basic jobs start near 2^32 and ``configured`` alone would be the lowest of all.
    """
    if present < configured:
        return configured
    return min(present + configured, HIGHEST_PRIORITY)


class Step(StrEnum):
    """The next thing to do to a job that is being recovered."""

    WAIT = "wait"
    REQUEUE_HOLD = "requeue-hold"
    SET_GRES = "set-gres"
    RELEASE = "release"
    RAISE = "raise"
    DONE = "done"
    LOST = "lost"  # somebody else acted on the job: leave it to them


@dataclass(frozen=True, slots=True)
class Goal:
    """``restart``: the run that failed; ``tres``: the request of the next one as
    core/gres.gpu_request writes it; ``raised``: whether priority and start time have been set;
    ``ours``: whether we requeued it."""

    restart: int
    tres: str
    raised: bool = False
    ours: bool = True


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
    if view.held:
        return Step.RELEASE
    return Step.DONE if goal.raised else Step.RAISE
