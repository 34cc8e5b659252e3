# SPDX-License-Identifier: Apache-2.0
"""What somebody's jobs on whole GPUs left unused, and whether they would share well.

Of each job the peak of its memory and its SM activity were measured while it had the GPU. It would
share where half of the GPU's memory is enough for it (with the margin that estimates get), and its
activity leaves room for another of its kind.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import median

from slurm_coloc.core.records.observed import ObservedJob

MARGIN = 1.1  # of a measured peak, for the next run's
ROOM = 0.6  # SM activity up to which a second job finds room
MOST = 8  # jobs on a GPU that are counted with


class Fit(StrEnum):
    """Whether a job would share."""

    WELL = "would share"
    SLOW = "keeps the GPU busy"
    LARGE = "needs most of the memory"
    UNKNOWN = "activity not measured"


@dataclass(frozen=True, slots=True)
class Advised:
    """A job with what is said of it; ``together``: how many like it fit on its GPU by memory."""

    job: ObservedJob
    fit: Fit
    together: int

    @property
    def hours(self) -> float:
        """GPU hours in which it was measured."""
        return (self.job.until_s - self.job.since_s) / 3600 * self.job.gpus


@dataclass(frozen=True, slots=True)
class Advice:
    """``hours``: GPU hours of all jobs; ``share_hours``: of those that would share;
    ``needed_hours``: what these would have taken of whole GPUs, by memory alone; ``wait_s``: median
    wait of those that would share, None where it is not known."""

    jobs: tuple[Advised, ...]
    hours: float
    share_hours: float
    needed_hours: float
    wait_s: float | None

    @property
    def sharing(self) -> int:
        """How many would share."""
        return sum(one.fit is Fit.WELL for one in self.jobs)


def _fit(job: ObservedJob) -> tuple[Fit, int]:
    need_mib = max(1.0, job.peak_mib * MARGIN)
    together = min(MOST, int(job.total_mib / need_mib))
    if together < 2:
        return Fit.LARGE, together
    if job.smact is None:
        return Fit.UNKNOWN, together
    return (Fit.WELL if job.smact <= ROOM else Fit.SLOW), together


def _together(jobs: Iterable[ObservedJob]) -> Iterator[ObservedJob]:
    """Each job once a node. Its records are several where its agent was started again, or where it
    held no GPU memory for minutes; ``until_s`` then is what was measured behind ``since_s``."""
    by_job: dict[object, list[ObservedJob]] = {}
    for one in jobs:
        run = (one.submit_s, one.start_s) if one.start_s is not None else one.since_s
        by_job.setdefault((one.job_id, one.node, run), []).append(one)
    for parts in by_job.values():
        known = [(one.smact, one.samples) for one in parts if one.smact is not None]
        samples = sum(count for _, count in known)
        yield replace(
            parts[0],
            until_s=parts[0].since_s + sum(one.until_s - one.since_s for one in parts),
            samples=sum(one.samples for one in parts),
            gpus=max(one.gpus for one in parts),
            peak_mib=max(one.peak_mib for one in parts),
            smact=sum(part * count for part, count in known) / samples if samples else None,
        )


def advise(jobs: Iterable[ObservedJob]) -> Advice:
    """Judge the jobs of one user; the longest first."""
    whole = _together(job for job in jobs if job.until_s > job.since_s)
    found = [Advised(job, *_fit(job)) for job in whole]
    found.sort(key=lambda one: -one.hours)
    well = [one for one in found if one.fit is Fit.WELL]
    waits = _waits(well)
    return Advice(
        tuple(found),
        sum(one.hours for one in found),
        sum(one.hours for one in well),
        sum(one.hours / one.together for one in well),
        median(waits) if waits else None,
    )


def _waits(jobs: Sequence[Advised]) -> list[float]:
    pairs = [(one.job.submit_s, one.job.start_s) for one in jobs]
    return [start - submit for submit, start in pairs if submit is not None and start is not None]
