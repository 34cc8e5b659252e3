# SPDX-License-Identifier: Apache-2.0
"""Rows of the lists that colocd works through: each step follows from what Slurm shows."""

from dataclasses import dataclass

from slurm_coloc.core.records.runs import OfRun


@dataclass(slots=True, kw_only=True)
class Listed(OfRun):
    """A row of a list that colocd works through. ``tries``: steps that Slurm refused."""

    uid: int
    state: str = "open"
    note: str = ""
    tries: int = 0
    created_s: float
    updated_s: float


@dataclass(slots=True, kw_only=True)
class Recovery(Listed):
    """A job that is put back after its run ended. ``cause``: whose doing the end was
    (core/recover/outcome); ``way``: what the next try asks for (core/recover/next_try);
    ``base``: the priority that the job had by itself; ``front``: it goes first in the queue;
    ``raised_s``: since when, None where it does not or no longer; ``avoid``: a node that it is
    to be kept from; ``was``: what its owner had excluded before, None until that was read;
    ``late``: it began after the job had ended."""

    tres: str
    held: bool = False
    raised: bool = False
    late: bool = False
    cause: str = "self"
    way: str = "whole"
    base: int = 0
    front: bool = True
    raised_s: float | None = None
    qos: str | None = None
    avoid: str | None = None
    was: str | None = None
    excluded: bool = False
    nice: int | None = None


@dataclass(slots=True, kw_only=True)
class PutBack(Listed):
    """A run that was put back before it began. ``was``: what its owner had excluded, None where no
    other node can take it; ``base``: the priority that the job is to have again, 0 where it has;
    ``excluded``, ``delayed``: what has been done."""

    node: str
    why: str
    was: str | None = None
    excluded: bool = False
    delayed: bool = False
    base: int = 0


@dataclass(slots=True, kw_only=True)
class SlottedJob(Listed):
    """A job with time slots. ``state``: ``open`` while it may have another slot, ``dropped`` when
    it has none any more but its time is still bounded, else how it ended. ``nice``: its owner's;
    the others are core/time/slot.State's."""

    restart: int = 0
    total_s: float | None
    used_s: float = 0.0
    nice: int = 0
    signalled_s: float | None = None
    placed: bool = True
    behind_s: float | None = None
    ended: int = 0

    @property
    def live(self) -> bool:
        """It is looked after."""
        return self.state in ("open", "dropped")


@dataclass(slots=True, kw_only=True)
class StretchedRun(Listed):
    """A run on a share and its time limit. ``base_s``: the limit as the job's owner gave it, None:
    unlimited; ``set_s``: what we made of it last, None: nothing; ``lost_s``: lost beside others up
    to ``at_s``; ``speed``: the present one; ``alone``: its SM activity while it had the GPU to
    itself. ``state``: ``open``, ``theirs`` where somebody else changed the limit, ``restored`` when
    a later run has the original again, ``gone`` or ``failed``."""

    start_s: float
    base_s: float | None
    set_s: float | None
    lost_s: float = 0.0
    at_s: float
    speed: float = 1.0
    others: int = 0
    alone: float | None = None
    times: int = 0

    @property
    def original_s(self) -> float:
        """``base_s`` of a run that has a limit."""
        assert self.base_s is not None
        return self.base_s

    @property
    def limit_s(self) -> float:
        """The limit that a run has, as we know it."""
        return self.set_s or self.original_s


@dataclass(slots=True, kw_only=True)
class ArrayPlan:
    """What an array's waiting tasks are given. ``was``: the requests that ``tres`` replaces, with
    blanks between; ``tasks``: how many were changed."""

    decision: str
    array_job_id: int
    uid: int
    was: str
    tres: str
    why: str
    tasks: int = 0
    state: str = "open"
    tries: int = 0
    updated_s: float
