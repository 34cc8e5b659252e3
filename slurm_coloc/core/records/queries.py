# SPDX-License-Identifier: Apache-2.0
"""Rows of the answers to what people ask of the history."""

from dataclasses import dataclass

from slurm_coloc.core.records.runs import Run

#: fields that are shown of a decision of observe mode
OBSERVED = (
    *("id", "job_id", "made_s", "uid", "account", "partition", "action", "reason", "detail"),
    *("shards", "shard_mib", "shards_per_gpu", "estimator", "memory_mib", "upper_mib"),
)


@dataclass(slots=True, kw_only=True)
class RunWithDecision(Run):
    """A run with what was decided of its job, and the recovery by which it came, with the neighbour
    that had ended the run before; ``name``: the job's at its submission;
    ``victims``: how many runs it ended itself."""

    account: str | None
    partition: str | None
    name: str | None
    action: str
    reason: str
    shards: int
    shard_mib: int
    shards_per_gpu: int
    memory_mib: int | None
    upper_mib: int | None
    estimator: str | None
    made_s: float
    smact: float | None
    retry_way: str | None
    retry_cause: str | None
    retry_culprit: int | None
    victims: int


@dataclass(frozen=True, slots=True)
class UserSum:
    """Ended runs of a user: how many, how they ended, GPU hours, and sums (MiB) over the
    ``measured`` ones, whose estimate, reservation and peak are known."""

    uid: int
    runs: int
    shared: int | None
    completed: int | None
    oom: int | None
    put_back: int | None
    hours: float | None
    measured: int
    peak_mib: int
    estimate_mib: int
    reserved_mib: int


@dataclass(frozen=True, slots=True)
class UnfitNode:
    """A node, how many runs were put back there, the time of the last one and why."""

    node: str
    runs: int
    last_s: float
    why: str


@dataclass(frozen=True, slots=True)
class Tally:
    """How often something happened since this was counted: ``what``, told apart by ``labels``."""

    what: str
    labels: tuple[str, ...]
    n: float


@dataclass(frozen=True, slots=True)
class OpenRuns:
    """Runs that colocd follows, by Slurm's state and what was decided."""

    state: str
    action: str
    runs: int


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows by kind, for `coloc status`."""

    decisions: int
    unbound: int
    open_runs: int
    open_work: int
