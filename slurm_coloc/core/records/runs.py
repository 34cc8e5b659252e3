# SPDX-License-Identifier: Apache-2.0
"""Decisions, the runs of their jobs with what nodes report of them, and what is learned from them.

What part of a GPU a run had follows from its decision and from its request in Slurm (``tres``).

Documents of nodes (evidence, use) are kept and shown as they came; only the names that decide
something stand here.
"""

from dataclasses import dataclass, field
from typing import Any, NotRequired, Protocol, TypedDict

from slurm_coloc.core.slurm.gres import count_of, same_gres


class Evidence(TypedDict, total=False):
    """What the Epilog found in the log of a run."""

    oom: bool
    kind: str
    line: str
    requested_mib: int | None
    in_use_mib: int | None
    free_mib: int | None
    capacity_mib: int | None
    others_mib: int | None


class Held(TypedDict, total=False):
    """Memory that another job held at the same moment."""

    job_id: int
    held_mib: int
    processes: int


class LastSample(TypedDict, total=False):
    """The last sample in which a run held memory."""

    at_s: float
    held_mib: int
    gpu_free_mib: int | None
    foreign_mib: int | None
    neighbours: list[Held]


class GpuEvent(TypedDict):
    """Something that happened to a run's GPU meanwhile. The figures are an overrun's."""

    at_s: float
    kind: str
    text: str
    state: NotRequired[str | None]
    uuid: NotRequired[str | None]
    held_mib: NotRequired[int | None]
    promised_mib: NotRequired[int | None]


class Use(TypedDict, total=False):
    """What a run used on one node, by its agent (flow/nodes/usage has all of it)."""

    node: str
    gpus: list[dict[str, Any]]
    neighbours: list[dict[str, Any]]
    events: list[GpuEvent]
    last: LastSample | None
    series: dict[str, Any] | None


class Checkpoint(TypedDict, total=False):
    """What a run said of its checkpoints in its log."""

    goes_on: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A run's end as its node's Epilog saw it (flow/nodes/epilog has the message)."""

    exit_code: int | None = None
    signal: int | None = None
    gpu_uuids: tuple[str, ...] = ()
    ended_s: float | None = None
    evidence: Evidence | None = None
    peak_mib: int | None = None
    alone: bool | None = None
    method: str | None = None
    fence: str | None = None
    used: Use | None = None
    checkpoint: Checkpoint | None = None

    @property
    def oom(self) -> bool:
        """The log has evidence of a GPU out-of-memory."""
        return bool(self.evidence and self.evidence.get("oom"))

    @property
    def goes_on(self) -> bool:
        """The run said in its log that it is to be continued."""
        return bool(self.checkpoint and self.checkpoint.get("goes_on"))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDecision:
    """What was decided of a submission. ``bound``: 1, its job was seen; 0, not yet; 2, it never
    became one. ``request``, ``features``, ``learning``: JSON objects as they were written."""

    id: str
    cluster: str
    made_s: float
    uid: int
    account: str | None = None
    partition: str | None = None
    mode: str
    action: str
    reason: str
    detail: str
    shards: int
    shard_mib: int
    shards_per_gpu: int
    estimator: str | None = None
    memory_mib: int | None = None
    upper_mib: int | None = None
    smact: float | None = None
    fingerprint: str | None = None
    options: str | None = None
    features: dict[str, Any] = field(default_factory=dict)
    request: dict[str, Any] = field(default_factory=dict)
    exclusive_tres: str
    may_requeue: bool
    job_id: int | None = None
    bound: int = 0
    learning: dict[str, Any] | None = None
    slot: str | None = None
    max_slowdown: float | None = None

    @property
    def req_nodes(self) -> str:
        """The nodes that the job's owner asked for; "" for any."""
        return self.request.get("req_nodes") or ""


class Decided(Protocol):
    """What a decision says of a share."""

    @property
    def action(self) -> str:
        """See core/decide/decision.Action."""

    @property
    def exclusive_tres(self) -> str:
        """The same job on whole GPUs."""


def shared(tres: str | None, decision: Decided) -> bool:
    """Whether a run held a share of a GPU: it was shared, and not yet put on a whole one."""
    return decision.action == "collocate" and not same_gres(tres or "", decision.exclusive_tres)


def promised_mib(tres: str | None, decision: StoredDecision) -> int:
    """The memory of one GPU that the run was promised; 0 where it had a whole one."""
    return shards_of(tres, decision) * decision.shard_mib if shared(tres, decision) else 0


def shards_of(tres: str | None, decision: StoredDecision) -> int:
    """Shards that a run on a share had of each GPU: recovery, another task's outcome, the owner or
    an admin may have changed the count since the decision."""
    shards = count_of(tres or "", "shard")
    return decision.shards if shards is None else shards


#: decision, job and restart
Key = tuple[str, int, int]


@dataclass(slots=True)
class OfRun:
    """What is about one run of a job."""

    decision: str
    job_id: int
    restart: int

    @property
    def key(self) -> Key:
        """What tells it from others."""
        return self.decision, self.job_id, self.restart


@dataclass(slots=True, kw_only=True)
class Run(OfRun):
    """A run of a job: from when it is in the queue to its end. ``array_job_id``, ``array_task``: of
    a task that has left its array's record; None for any other job."""

    uid: int
    submit_s: float | None = None
    state: str
    node: str | None = None
    gpu_uuids: tuple[str, ...] | None = None
    tres: str | None = None
    start_s: float | None = None
    end_s: float | None = None
    outcome: str | None = None
    exit_code: int | None = None
    peak_mib: int | None = None
    evidence: Evidence | None = None
    share_mib: int | None = None
    verdict: str | None = None
    open: bool = True
    used: list[Use] | None = None
    blame: str | None = None
    method: str | None = None
    array_job_id: int | None = None
    array_task: int | None = None


@dataclass(slots=True, kw_only=True)
class EndedRun(Run):
    """A run with what is known of its end."""

    end_s: float
    share_mib: int


@dataclass(slots=True, kw_only=True)
class PresentRun(OfRun):
    """A run that goes on and has begun, or ended a moment ago, with what its decision says."""

    uid: int
    state: str
    gpu_uuids: tuple[str, ...] | None
    tres: str | None
    start_s: float
    end_s: float | None
    open: bool
    smact: float | None
    max_slowdown: float | None
    mode: str
    action: str
    exclusive_tres: str
    fingerprint: str | None = None
    options: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A line of what happened to a job, for `coloc explain`. ``job_id`` None: before it had one."""

    at_s: float
    kind: str
    text: str
    job_id: int | None


@dataclass(slots=True, kw_only=True)  # not frozen: submissions read dozens of them
class ModelPeaks:
    """Measured peaks of a user's model with these options, GPU type and batch size; the figures are
    core/decide/learned.Past's. ``smact``: SM activity of a run alone on its GPU."""

    fingerprint: str
    uid: int
    options: str
    gpu: str
    batch: int
    runs: int = 0
    peak_mib: int
    low_mib: int = 0
    at_least_mib: int
    oom_mib: int
    estimator: str
    memory_mib: int
    context_mib: int
    last_s: float
    smact: float | None = None
