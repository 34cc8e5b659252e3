# SPDX-License-Identifier: Apache-2.0
"""Whether an ended run is put back, and what its next try asks for.

A job that needed more than it had gets more memory step by step, then a whole GPU. One that others
ended (a neighbour above its share, a process of no job, a GPU that others had filled, a fault of
MPS or of the card) comes back with the same request, and that does not count against it. All else
is left to Slurm.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

from slurm_coloc.core.recover.outcome import Blame, Outcome
from slurm_coloc.core.slurm.gres import with_shards


class Verdict(StrEnum):
    """What recovery does about an ended run."""

    REQUEUE = "requeue"
    VICTIM = "requeue-victim"  # put back too: others ended it
    NOT_OURS = "not-ours"  # another cause than GPU memory, or a job that we did not place
    DOES_NOT_FIT = "does-not-fit"  # it had a whole GPU
    SWITCHED_OFF = "switched-off"
    NO_REQUEUE = "no-requeue"  # the user's own --no-requeue
    JOB_CAP = "job-cap"
    USER_CAP = "user-cap"
    CLUSTER_CAP = "cluster-cap"
    VICTIM_CAP = "victim-cap"

    @property
    def puts_back(self) -> bool:
        """Whether the job is requeued."""
        return self in (Verdict.REQUEUE, Verdict.VICTIM)


class Way(StrEnum):
    """What the next try asks for, compared with the ended one."""

    MORE = "more"
    WHOLE = "whole"
    SAME = "same"


#: causes that are not the run's own
VICTIMS = frozenset({Blame.NEIGHBOUR, Blame.FOREIGN, Blame.FULL, Blame.MPS_FAULT, Blame.HARDWARE})


@dataclass(frozen=True, slots=True)
class End:
    """How a run ended. ``shared``: on a share of a GPU. ``placed``: colocd chose what it got."""

    outcome: Outcome
    blame: Blame | None = None
    shared: bool = True
    placed: bool = True

    @property
    def victim(self) -> bool:
        """Whether others ended it."""
        return self.blame in VICTIMS and self.outcome in (Outcome.OOM_GPU, Outcome.FAILED)

    @property
    def own(self) -> bool:
        """Whether it ran out of GPU memory by itself, or for an unknown cause; or it was ended for
        holding more than it was promised, which is the same need."""
        return self.outcome in (Outcome.OOM_GPU, Outcome.OVERRUN) and not self.victim


@dataclass(frozen=True, slots=True)
class Caps:
    """Limits: recoveries of one job, and of one user and the cluster in 24 hours, for its own need;
    and of one job for each cause that is not its own."""

    per_job: int = 2
    per_user_day: int = 50
    per_day: int = 500
    per_cause: int = 3


@dataclass(frozen=True, slots=True)
class Tally:
    """Recoveries so far, counted as Caps counts them; ``cause``: for the cause of this end."""

    own: int = 0
    user_day: int = 0
    day: int = 0
    cause: int = 0


def judge(end: End, *, may_requeue: bool, enabled: bool, tally: Tally, caps: Caps) -> Verdict:
    if not end.placed or not (end.own or end.victim):
        return Verdict.NOT_OURS
    if end.own and not end.shared:
        return Verdict.DOES_NOT_FIT
    if not enabled:
        return Verdict.SWITCHED_OFF
    if not may_requeue:
        return Verdict.NO_REQUEUE
    if end.victim:
        # The last try of a share is on a whole GPU, where there are no neighbours.
        used_up = tally.cause >= caps.per_cause and not end.shared
        return Verdict.VICTIM_CAP if used_up else Verdict.VICTIM
    if tally.own >= caps.per_job:
        return Verdict.JOB_CAP
    if tally.user_day >= caps.per_user_day:
        return Verdict.USER_CAP
    if tally.day >= caps.per_day:
        return Verdict.CLUSTER_CAP
    return Verdict.REQUEUE


@dataclass(frozen=True, slots=True)
class Need:
    """What is known of the memory (MiB of one GPU) that a run wanted: its measured peak, what it
    held when last seen or by its log, and what it requested then, by its log."""

    peak_mib: int | None = None
    held_mib: int | None = None
    requested_mib: int | None = None

    @property
    def mib(self) -> int | None:
        """The most that it wanted as far as known; None where nothing was measured or logged."""
        held = max(self.peak_mib or 0, self.held_mib or 0)
        return held + (self.requested_mib or 0) if held else None


@dataclass(frozen=True, slots=True)
class Steps:
    """How a share grows: ``most`` times, each by at least ``more_mib`` (thesis, 7.2: 5 GB) and to
    at least ``ratio`` times the need (1.25 is ours: a failed request is seldom the last)."""

    most: int = 1
    more_mib: int = 5120
    ratio: float = 1.25


@dataclass(frozen=True, slots=True)
class Held:
    """The ended run's request: ``tres`` with ``shards`` of ``shard_mib`` on each GPU (0: none), out
    of ``per_gpu`` of a GPU. ``whole``: the same job on a whole GPU, "" where that is not known.
    ``grown``: the number of steps so far."""

    tres: str
    whole: str
    shards: int
    shard_mib: int
    per_gpu: int
    grown: int = 0


def grow(held: Held, need: Need, steps: Steps, tries_left: int) -> tuple[Way, str]:
    """The next request of a run that needed more than ``held``. The last try (``tries_left`` 1) is
    always on a whole GPU, and so is one whose need is unknown."""
    wanted = need.mib
    if held.shards and wanted is not None and held.grown < steps.most and tries_left > 1:
        had_mib = held.shards * held.shard_mib
        mib = max(had_mib + steps.more_mib, math.ceil(wanted * steps.ratio))
        shards = math.ceil(mib / held.shard_mib)
        if shards < held.per_gpu:
            return Way.MORE, with_shards(held.tres, shards)
    return Way.WHOLE, held.whole


def again(held: Held, tally: Tally, caps: Caps) -> tuple[Way, str]:
    """The next request of a run that others ended: the same, after its tries a whole GPU."""
    if held.shards and tally.cause >= caps.per_cause:
        return Way.WHOLE, held.whole
    return Way.SAME, held.tres
