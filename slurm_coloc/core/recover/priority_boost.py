# SPDX-License-Identifier: Apache-2.0
"""Where a recovered job stands in the queue (docs/adr/0016).

A requeue costs a job its place: Slurm counts its age anew, and under priority/basic it is the last
of all. So it gets back the priority that it had, and goes to the front a few times a day for each
user, for a while. A victim of others only gets back what it had: a user who runs out of memory on
purpose, or pretends that others did it, gains the few fronts of the day and nothing else.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from slurm_coloc.core.slurm.job import JobView

# Slurm keeps 0 for held jobs and the values above this one for its own marks (slurm.h).
HIGHEST_PRIORITY = 2**32 - 16
# priority/basic begins at its top and counts down; priority/multifactor's weights stay far below.
BASIC = 2**31


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
