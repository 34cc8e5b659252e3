# SPDX-License-Identifier: Apache-2.0
"""The decision: a pure function of the request, the estimate, the cluster, history and rules.

Failing safe: whatever is missing or doubtful leads to a whole GPU, never to a guess.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from slurm_coloc.core.decide.decision import Action, Decision, Estimate, Reason
from slurm_coloc.core.decide.request import JobRequest, gpu_demand
from slurm_coloc.core.decide.sizing import Sizing
from slurm_coloc.core.decide.slices import Method, Wish, or_slice
from slurm_coloc.core.slurm.cluster import (
    ClusterShape,
    SharedGpu,
    fewest_cpus,
    may_land_elsewhere,
    shared_gpus,
    suspends,
    wanted_partitions,
)
from slurm_coloc.core.slurm.gres import count_of

# What --gpus-per-task=1 sets by itself: each task sees the one GPU that is its own.
_OWN_GPU = re.compile(r"(?:gres[:/])?gpu:(?:per_task|single):1")


@dataclass(frozen=True, slots=True)
class Rules:
    """The part of the configuration that decides."""

    sizing: Sizing
    pool: tuple[str, ...] = ()
    method: Method = "auto"


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


#: Turns the estimate of a job that may share into a reservation on one GPU, from the shared GPUs
#: that it may get, smallest first.
Reserve = Callable[[Question, tuple[SharedGpu, ...], History, Rules], Decision]


def exclusive(reason: Reason, detail: str = "") -> Decision:
    """A whole GPU, and why."""
    return Decision(Action.EXCLUSIVE, reason, detail=detail)


def _spreads(request: JobRequest, shape: ClusterShape) -> bool:
    """Whether the tasks may not fit one node. A request that is shared is put on one node."""
    if request.max_nodes == 1:
        return False
    cpus = fewest_cpus(request, shape)
    demand = gpu_demand(request)
    each = request.cpus_per_task or 1
    if demand.one_per_task:
        each = max(each, count_of(request.cpus_per_tres, "gpu") or 1)
    return bool(cpus) and demand.tasks * each > cpus


def _several(request: JobRequest, shape: ClusterShape) -> Decision | None:
    """The decision for a job of several GPUs that cannot share them, or of one that Slurm might
    split over several."""
    demand = gpu_demand(request)
    if demand.nodes > 1:
        return exclusive(Reason.MULTI_GPU, f"it asks for {demand.nodes} nodes")
    if (demand.total or 1) > 1:
        if not demand.one_per_task:
            return exclusive(Reason.MULTI_GPU)
        if request.kind != "batch":
            return exclusive(Reason.MULTI_GPU, "and only jobs of sbatch")
        if not shape.shares_several:
            return exclusive(Reason.MULTI_GPU_SITE)
        if request.tres_bind and not _OWN_GPU.fullmatch(request.tres_bind):
            return exclusive(Reason.GPU_OPTIONS)
    elif shape.splits_shares:
        if not shape.shares_several:
            return exclusive(Reason.MULTI_GPU_SITE, "here Slurm may split a share over GPUs")
        if demand.tasks > 1 or request.kind != "batch":
            return exclusive(Reason.SPLIT_SHARE)
    return None


def _not_shareable(request: JobRequest, shape: ClusterShape) -> Decision | None:
    """The decision for a job that is not a candidate for sharing, whatever its memory."""
    demand = gpu_demand(request)
    if demand.total == 0:
        return Decision(Action.ASIS, Reason.NO_GPU_ASKED)
    if request.het:
        return Decision(Action.ASIS, Reason.HET_JOB)
    if several := _several(request, shape):
        return several
    if request.exclusive_node:
        return exclusive(Reason.WHOLE_NODE)
    if any(suspends(shape.partition(name)) for name in wanted_partitions(request, shape)):
        return exclusive(Reason.SUSPENDS)
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
    question: Question, reserve: Reserve, shape: ClusterShape, history: History, rules: Rules
) -> Decision:
    """Decide one submission. Never more shards than one GPU has, never a guess."""
    early = _not_shareable(question.request, shape)
    if early:
        return early
    demand = gpu_demand(question.request)
    gpus = max(1, demand.total or 1)
    kinds = shared_gpus(question.request, demand.type, shape, rules.pool, gpus)
    decision = reserve(question, kinds, history, rules)
    wish = Wish(rules.method, history.oom_share_mib)
    decision = or_slice(decision, question.estimate, question.request, shape, rules.pool, wish)
    if gpus == 1 or decision.action is not Action.COLLOCATE:
        return decision
    return replace(decision, gpus=gpus, detail=f"on each of {gpus} GPUs")
