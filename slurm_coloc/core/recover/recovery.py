# SPDX-License-Identifier: Apache-2.0
"""Recovery of a job that is put back (core/recover/next_try says whether): its next step, and its
priority in the queue.

The steps and their order were tried on 22.05, 24.11, 25.11 and 26.05: a finished job cannot be
updated, so it is requeued held first; priority cannot be set while it is held; after a requeue it
would wait about two minutes (BeginTime) unless its start time is set. Each step follows from what
Slurm shows *now*, so a colocd that stopped between two of them goes on from there, and no step is
done twice.

The priority (docs/adr/0016): a requeue costs a job its place, since Slurm counts its age anew, and
under priority/basic it is the last of all. So it gets back the priority that it had, and a few
times a day for each user it goes to the front for a while. A job that others ended only gets back
what it had: a user who runs out of memory on purpose, or pretends that others did it, gains these
few times and nothing else.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from slurm_coloc.core.slurm.gres import same_gres
from slurm_coloc.core.slurm.job import JobView

# Slurm keeps 0 for held jobs and the values above this one for its own marks (slurm.h).
HIGHEST_PRIORITY = 2**32 - 16
# priority/basic begins at its top and counts down; priority/multifactor's weights stay far below.
BASIC = 2**31


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
    """``restart``: of the run that failed; ``tres``: the request of the next one, as
    core/slurm/gres.gpu_request writes it; ``raised``: priority and start time have been set;
    ``ours``: we requeued it; ``avoid``: a node is still to be excluded."""

    restart: int
    tres: str
    raised: bool = False
    ours: bool = True
    avoid: bool = False


def next_step(view: JobView, goal: Goal) -> Step:
    if view.restarts == goal.restart:
        if view.state == "FAILED":
            # Also while it is COMPLETING, so that no job that depends on it sees it fail.
            return Step.REQUEUE_HOLD
        # A slurmctld that died before it saved the job's end still shows it running or waiting, and
        # learns of the end from the node or a second run.
        return Step.LOST if view.ended else Step.WAIT
    if view.restarts < goal.restart:
        return Step.LOST  # another job under the same id
    if view.state == "CANCELLED" and not same_gres(view.tres, goal.tres):
        return Step.LOST
    if view.restarts > goal.restart + 1 or view.state != "PENDING":
        # It runs or ran again, so the recovery has worked, or the owner requeued it himself.
        return Step.DONE
    if view.completing:
        return Step.WAIT
    if not same_gres(view.tres, goal.tres):
        return Step.SET_GRES
    if not goal.ours and not view.held_by_slurm:
        return Step.DONE  # its owner put it back, with his own hold, start and priority
    if goal.avoid:
        return Step.EXCLUDE
    if view.held:
        return Step.RELEASE
    return Step.DONE if goal.raised else Step.RAISE


@dataclass(frozen=True, slots=True)
class Place:
    """``front``: it goes before all other jobs. ``base``: the priority that it had before its first
    run, 0 where that was not seen."""

    front: bool
    base: int = 0


def raised_priority(present: int, configured: int) -> int:
    """A priority that raises a job with the priority ``present``.

    Under priority/multifactor present values are small and ``configured`` is far above; under
    priority/basic jobs start near 2^32 and ``configured`` alone would be the lowest of all.
    """
    if present < configured:
        return configured
    return min(present + configured, HIGHEST_PRIORITY)


def bound(view: JobView, own: int, waiting: Iterable[JobView]) -> int:
    """The highest priority for a recovered job: below every waiting job of another user in another
    QOS that is above the job's ``own`` priority."""
    mine = set(view.partition.split(","))
    above = [
        other.priority
        for other in waiting
        if other.uid != view.uid
        and other.qos != view.qos
        and other.priority > own
        and mine & set(other.partition.split(","))
    ]
    return min(above) - 1 if above else HIGHEST_PRIORITY


def priority_for(
    view: JobView, place: Place, configured: int, waiting: Iterable[JobView]
) -> int | None:
    """The priority to set for a recovered job as Slurm shows it; None: it keeps the present one."""
    own = place.base or view.priority
    wanted = own
    if place.front:
        wanted = max(own, min(raised_priority(own, configured), bound(view, own, waiting)))
    return wanted if wanted > view.priority else None


def settled_priority(place: Place) -> int | None:
    """The priority of a job whose time at the front is over: its own where Slurm would make it the
    last (priority/basic), None where Slurm's figure is right: it grows with age."""
    return place.base if place.base >= BASIC else None
