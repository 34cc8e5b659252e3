# SPDX-License-Identifier: Apache-2.0
"""The decision: a pure function of the request, the estimate, the cluster, the history and the
rules.

It fails safe: where anything is missing or doubtful the job gets a whole GPU.
"""

import math
import re
from dataclasses import replace

from slurm_coloc.core.decide.decision import (
    Action,
    Decision,
    Estimate,
    Question,
    Reason,
    Rules,
    Sizing,
)
from slurm_coloc.core.decide.request import JobRequest
from slurm_coloc.core.decide.slices import or_slice
from slurm_coloc.core.slurm.cluster import (
    ClusterShape,
    SharedGpu,
    features_fit,
    fewest_cpus,
    keeps_users_apart,
    may_get_unshared_nodes,
    nodes_of,
    plain,
    shared_gpus,
    suspends,
    wanted_partitions,
)
from slurm_coloc.core.slurm.gres import count_of

#: what --coloc-policy may name
POLICIES = ("collocate", "exclusive")
# The binding that --gpus-per-task=1 sets by itself: each task sees its own GPU.
_OWN_GPU = re.compile(r"(?:gres[:/])?gpu:(?:per_task|single):1")


def shards_needed(estimate: Estimate, shards_per_gpu: int, sizing: Sizing) -> int:
    """Shards that the job must reserve on a GPU of ``shards_per_gpu``; may exceed the GPU.

    The largest of three: the shards for its memory, for its part of the compute budget (where the
    SM activity is known), and one GPU's shards over the most jobs of a GPU.
    """
    memory = math.ceil(estimate.upper_mib / sizing.shard_mib)
    jobs = math.ceil(shards_per_gpu / sizing.max_jobs_per_gpu)
    compute = 0
    if estimate.smact is not None and sizing.compute_budget is not None:
        # A job may use all SMs when it is alone; the bound keeps it placeable.
        compute = min(
            math.ceil(estimate.smact / sizing.compute_budget * shards_per_gpu), shards_per_gpu - 1
        )
    return max(1, memory, jobs, compute)


def exclusive(reason: Reason, detail: str = "") -> Decision:
    """A whole GPU, and why."""
    return Decision(Action.EXCLUSIVE, reason, detail=detail)


def _reserve(
    question: Question, kinds: tuple[SharedGpu, ...], shape: ClusterShape, rules: Rules
) -> Decision:
    """Shards on the smallest of ``kinds`` that holds the job with room to spare. ``kinds``: those
    that the job may get, smallest first."""
    if question.policy != "collocate":
        return exclusive(Reason.USER_EXCLUSIVE)
    estimate = question.estimate
    if estimate is None:
        return exclusive(question.no_estimate, question.detail)
    if question.held_more:
        return exclusive(Reason.HELD_MORE, question.held_more)
    if not kinds:
        return exclusive(Reason.NO_SHARED_GPU)
    typed, several = question.request.demand.type, question.request.demand.nodes > 1
    if several and rules.steered:
        return exclusive(Reason.MULTI_GPU, "colocd places no share of several nodes")
    for position, kind in enumerate(kinds):
        shards = shards_needed(estimate, kind.shards, rules.sizing)
        if shards >= kind.shards:
            continue
        share_mib = shards * rules.sizing.shard_mib
        if question.oom_mib is not None and question.oom_mib >= share_mib:
            return exclusive(Reason.HISTORY_OOM, f"{question.oom_mib} MiB")
        # Where the smallest kind fits, any GPU will do. For a larger one the type must be named, or
        # Slurm would let the job wait for a GPU that can never hold it.
        named = typed or (kind.type if position else None)
        if position and (named is None or several):
            break
        if why := _not_apart(question.request, shape, rules):
            return exclusive(Reason.SHARING_WITH, why)
        return Decision(Action.COLLOCATE, Reason.FITS, shards, named, kind.shards)
    largest_mib = kinds[-1].shards * rules.sizing.shard_mib
    return exclusive(Reason.FILLS_GPU, f"{estimate.upper_mib} MiB of {largest_mib} MiB")


def _not_apart(request: JobRequest, shape: ClusterShape, rules: Rules) -> str:
    """Why nothing would keep a share of this job off other users' GPUs; "" where something does, or
    where the site does not ask for it (sharing.with).

    Slurm places shares by their count alone. Users are kept apart by ExclusiveUser of the
    partition, or by colocd's pins; without a pin a job asks for a whole GPU there
    (flow/place/at_submit).
    """
    if rules.share_with == "anyone":
        return ""
    names = wanted_partitions(request, shape)
    left = [name for name in names if not keeps_users_apart((name,), shape)]
    if not left and names:
        return ""
    if rules.steered and request.demand.on_a_node > 1:
        return "colocd pins no share of several GPUs"
    if not rules.steered:
        return f"partition {', '.join(left) or 'unknown'} has no ExclusiveUser=YES"
    if request.reservation or not plain(request.features):
        return "colocd pins no job with a reservation or a complex constraint"
    there = (node for node in nodes_of(request, shape) if node.name in rules.steered)
    if not any(features_fit(request.features, node.features) for node in there):
        return "none of its nodes is steered"
    return ""


def _spreads(request: JobRequest, shape: ClusterShape) -> bool:
    """Whether the tasks may not fit the nodes asked for, mostly one: a shared job gets no more."""
    if request.max_nodes == 1:
        return False
    cpus = fewest_cpus(request, shape)
    demand = request.demand
    each = request.cpus_per_task or 1
    if demand.one_per_task:
        each = max(each, count_of(request.cpus_per_tres, "gpu") or 1)
    return bool(cpus) and math.ceil(demand.tasks / demand.nodes) * each > cpus


def _on_several_nodes(request: JobRequest, shape: ClusterShape) -> Decision | None:
    """The decision for a job of several nodes that cannot share one GPU of each."""
    if not request.demand.one_per_node:
        return exclusive(Reason.MULTI_GPU, "several nodes share only one GPU of each")
    if request.kind != "batch":
        return exclusive(Reason.MULTI_GPU, "on several nodes only jobs of sbatch share")
    if shape.splits_shares:
        return exclusive(Reason.MULTI_GPU, "this Slurm may split a share over GPUs")
    return None


def _several(request: JobRequest, shape: ClusterShape) -> Decision | None:
    """The decision for a job that cannot share several GPUs, or that Slurm might split over
    several; None for any other."""
    demand = request.demand
    if demand.nodes > 1:
        return _on_several_nodes(request, shape)
    if (demand.total or 1) > 1:
        if not demand.one_per_task:
            return exclusive(Reason.MULTI_GPU)
        if request.kind != "batch":
            return exclusive(Reason.MULTI_GPU, "with several GPUs only jobs of sbatch share")
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
    """The decision for a job that cannot share, whatever its memory; None for any other."""
    demand = request.demand
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
    if may_get_unshared_nodes(request, shape):
        return exclusive(Reason.NAMED_NODES)
    return None


def decide(question: Question, shape: ClusterShape, rules: Rules) -> Decision:
    """Decide one submission. It never gets more shards than one GPU has."""
    if question.policy not in POLICIES:
        text = f"unknown policy {question.policy!r}: one of {', '.join(POLICIES)}"
        return exclusive(Reason.USER_EXCLUSIVE, text)
    request = question.request
    if early := _not_shareable(request, shape):
        return early
    demand, gpus = request.demand, request.demand.gpus
    kinds = shared_gpus(request, demand.type, shape, rules.pool, demand.on_a_node, demand.nodes)
    decision = or_slice(_reserve(question, kinds, shape, rules), question, shape, rules)
    if gpus == 1 or decision.action is not Action.COLLOCATE:
        return decision
    return replace(decision, gpus=gpus, detail=f"on each of {gpus} GPUs")
