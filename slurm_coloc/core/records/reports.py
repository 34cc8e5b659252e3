# SPDX-License-Identifier: Apache-2.0
"""Documents of nodes: the evidence in a run's log, what it used, how it ended.

They are kept and shown as they came; here are the names that decisions are made by.
"""

from dataclasses import dataclass
from typing import Any, TypedDict


class Evidence(TypedDict, total=False):
    """What the Epilog found in the log of a run."""

    oom: bool
    kind: str
    line: str
    requested_mib: int | None
    in_use_mib: int | None
    free_mib: int | None


class Held(TypedDict):
    """Memory that another job held at the same moment."""

    job_id: int
    held_mib: int


class LastSample(TypedDict, total=False):
    """The last sample in which a run held memory."""

    at_s: float
    held_mib: int
    foreign_mib: int | None
    neighbours: list[Held]


class GpuEvent(TypedDict):
    """Something that happened to a run's GPU meanwhile."""

    at_s: float
    kind: str
    text: str


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
