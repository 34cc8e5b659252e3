# SPDX-License-Identifier: Apache-2.0
"""The decision: a pure function of the request, the estimate, the cluster, history and rules.

Failing safe: whatever is missing or doubtful leads to a whole GPU, never to a guess.
"""

from dataclasses import dataclass
from typing import Protocol

from slurm_coloc.core.cluster import (
    ClusterShape,
    SharedGpu,
    fewest_cpus,
    may_land_elsewhere,
    shared_gpus,
)
from slurm_coloc.core.decision import Action, Decision, Estimate, Reason
from slurm_coloc.core.request import JobRequest, gpu_demand
from slurm_coloc.core.sizing import Sizing


@dataclass(frozen=True, slots=True)
class Rules:
    """The part of the configuration that decides."""

    sizing: Sizing
    pool: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class History:
    """What is known of the same model and options: the largest share (MiB) that was too small."""

    oom_share_mib: int | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """One submission: the request, and the estimate or why there is none."""

    request: JobRequest
    estimate: Estimate | None = None
    no_estimate: Reason = Reason.NO_SUMMARY
    detail: str = ""


class Policy(Protocol):
    """Turns the estimate of a job that may share into a reservation."""

    name: str

    def reserve(
        self, question: Question, kinds: tuple[SharedGpu, ...], history: History, rules: Rules
    ) -> Decision:
        """Decide for one GPU; ``kinds``: the shared GPUs that the job may get, smallest first."""


def exclusive(reason: Reason, detail: str = "") -> Decision:
    """A whole GPU, and why."""
    return Decision(Action.EXCLUSIVE, reason, detail=detail)


def _spreads(request: JobRequest, shape: ClusterShape) -> bool:
    """Whether the tasks may not fit one node. A request of one GPU is put on one node."""
    if request.max_nodes == 1:
        return False
    cpus = fewest_cpus(request, shape)
    return bool(cpus) and gpu_demand(request).tasks * (request.cpus_per_task or 1) > cpus


def _not_shareable(request: JobRequest, shape: ClusterShape) -> Decision | None:
    """The decision for a job that is not a candidate for sharing, whatever its memory."""
    demand = gpu_demand(request)
    if demand.total == 0:
        return Decision(Action.ASIS, Reason.NO_GPU_ASKED)
    if request.het:
        return Decision(Action.ASIS, Reason.HET_JOB)
    if demand.nodes > 1 or (demand.total or 1) > 1:
        return exclusive(Reason.MULTI_GPU)
    if request.exclusive_node:
        return exclusive(Reason.WHOLE_NODE)
    if request.kind == "srun" and demand.total is not None:
        return exclusive(Reason.SRUN_STEP)
    if request.tres_freq or request.ntasks_per_tres:
        return exclusive(Reason.GPU_OPTIONS)
    if _spreads(request, shape):
        return exclusive(Reason.MANY_TASKS)
    if may_land_elsewhere(request, shape):
        return exclusive(Reason.NAMED_NODES)
    return None


def decide(
    question: Question, policy: Policy, shape: ClusterShape, history: History, rules: Rules
) -> Decision:
    """Decide one submission. Never more shards than one GPU has, never a guess."""
    early = _not_shareable(question.request, shape)
    if early:
        return early
    gpu_type = gpu_demand(question.request).type
    kinds = shared_gpus(question.request, gpu_type, shape, rules.pool)
    return policy.reserve(question, kinds, history, rules)
