# SPDX-License-Identifier: Apache-2.0
"""Recovery of a job that is put back (core/recover/next_try says whether): which step comes next,
and its place in the queue.

The steps and their order were tried on 22.05, 24.11, 25.11 and 26.05: a finished job cannot be
updated, so it is requeued held first; priority cannot be set while it is held; after a requeue it
would wait about two minutes (BeginTime) unless its start time is set. Each step is found from what
Slurm shows *now*, so a colocd that died between two of them goes on where the job stands, and no
step is done twice.

The place (docs/adr/0016): a requeue costs a job its own, since Slurm counts its age anew, and under
priority/basic it is the last of all. So it gets back the priority that it had, and goes to the
front a few times a day for each user, for a while. A job that others ended only gets back what it
had: a user who runs out of memory on purpose, or pretends that others did it, gains the few fronts
of the day and nothing else.
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


@dataclass(frozen=True, slots=True)
class Place:
    """``front``: it goes before all others. ``base``: the priority that it had before its first
    run, 0 where that was not seen."""

    front: bool
    base: int = 0


def raised_priority(present: int, configured: int) -> int:
    """A priority that prefers a job whose own one is ``present``.

    Under priority/multifactor present values are small and ``configured`` is far above; under
    priority/basic jobs start near 2^32 and ``configured`` alone would be the lowest of all.
    """
    if present < configured:
        return configured
    return min(present + configured, HIGHEST_PRIORITY)


def bound(view: JobView, own: int, waiting: Iterable[JobView]) -> int:
    """The highest priority that a recovered job may be given: below every waiting job of another
    user in another QOS that stands above the job by itself (``own``: its own priority)."""
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
    """The priority of a job whose time at the front is over: its own one where Slurm would make it
    the last (priority/basic), None where Slurm's own figure is right: it grows with age."""
    return place.base if place.base >= BASIC else None
