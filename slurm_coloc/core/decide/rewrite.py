# SPDX-License-Identifier: Apache-2.0
"""The change of a request by a decision: the job_desc fields to set, with their values.

A GPU may be requested in four fields and with several gres in one string, and other options depend
on it (--cpus-per-gpu, --mem-per-gpu, DefCpuPerGPU, DefMemPerGPU, and the environment that `srun`
reads inside the job). With shards only, Slurm refuses or ignores those, so they are converted
(tried on 22.05, 24.11 and 26.05).
"""

import math
import re
from dataclasses import dataclass, field

from slurm_coloc.core.decide.decision import Action, Decision
from slurm_coloc.core.decide.request import JobRequest
from slurm_coloc.core.slurm.cluster import (
    ClusterShape,
    PartitionShape,
    node_of_each_kind,
    wanted_partitions,
)
from slurm_coloc.core.slurm.gres import (
    PER_TASK,
    Gres,
    count_of,
    task_bind,
    with_item,
    without,
)

# Variables that sbatch exports and an inner srun reads. Emptying these two is enough for srun; an
# *empty* SLURM_CPUS_PER_GPU breaks it, so the SPANK plugin unsets the others on the node.
EMPTIED = ("SLURM_GPUS", "SLURM_GPUS_PER_NODE")

Value = str | int


@dataclass(frozen=True, slots=True)
class Rewrite:
    """``fields``: job_desc fields to set ("" clears), and ``one_task_per_sharing``, a flag in its
    bitflags; ``empty_env``: variables to empty."""

    fields: dict[str, Value] = field(default_factory=dict)
    empty_env: tuple[str, ...] = ()


def whole_gpu(
    shape: ClusterShape, gpu_type: str | None = None, count: int = 1, shards_per_gpu: int = 0
) -> str:
    """The gres of a request for whole GPUs on this release.

    Before 23.11.5 Slurm puts whole-GPU and shard jobs on one device: there one GPU is asked for as
    all of its shards, where their number is known. With MIG devices the whole type is named.
    """
    if not shape.keeps_whole_apart and count == 1 and shards_per_gpu:
        return f"gres/shard:{shards_per_gpu}"
    gpu_type = gpu_type or shape.whole_type
    if gpu_type in shape.steerable:
        gpu_type = None  # a feature selects it
    kind = f"{gpu_type}:" if gpu_type else ""
    return f"gres/gpu:{kind}{count}"


def _shards_per_gpu(request: JobRequest, shape: ClusterShape) -> int:
    """The fewest shards of any GPU that the job may get: a larger request might wait for ever."""
    gpu_type = request.demand.type
    found = [
        node.shards_per_gpu
        for node in node_of_each_kind(request, shape)
        if node.shards_per_gpu and gpu_type in (None, node.gpu_type)
    ]
    return min(found, default=0)


def per_task(request: JobRequest, shape: ClusterShape) -> bool:
    """Whether the job requests its shards per task: for several GPUs, and wherever Slurm would
    split a share over several."""
    return shape.shares_several and (shape.splits_shares or request.demand.one_per_task)


def exclusive_tres(request: JobRequest, shape: ClusterShape) -> str:
    """The request of the same job on whole GPUs for a requeue, other gres kept, as
    core/slurm/gres.gpu_request writes it."""
    if per_task(request, shape):
        gpu = whole_gpu(shape, request.demand.type)
        return PER_TASK + with_item(without(request.tres_per_task, "gpu", "shard"), gpu)
    return _on_a_whole_gpu(request, shape)


def _on_a_whole_gpu(request: JobRequest, shape: ClusterShape) -> str:
    """tres_per_node of the same job on one whole GPU of its type, other gres kept."""
    shards = _shards_per_gpu(request, shape)
    return request.per_node(whole_gpu(shape, request.demand.type, 1, shards))


def _drop_gpus(request: JobRequest) -> dict[str, Value]:
    """Remove the GPU from every field that names it, other gres kept."""
    return {name: without(getattr(request, name), "gpu") for name in request.gpu_fields}


def _first_partition(request: JobRequest, shape: ClusterShape) -> PartitionShape | None:
    names = wanted_partitions(request, shape)
    return shape.partition(names[0]) if names else None


def _cpus(request: JobRequest, shape: ClusterShape) -> dict[str, Value]:
    """--cpus-per-gpu or the partition's DefCpuPerGPU as cpus_per_task."""
    asked = count_of(request.cpus_per_tres, "gpu")
    changed: dict[str, Value] = {"cpus_per_tres": ""} if request.cpus_per_tres else {}
    if asked is None and request.cpus_per_task is None:
        part = _first_partition(request, shape)
        asked = part.def_cpu_per_gpu if part else None
    if asked:
        each = math.ceil(asked * (request.demand.total or 1) / request.demand.tasks)
        changed["cpus_per_task"] = max(request.cpus_per_task or 1, each)
    return changed


def _memory(request: JobRequest, shape: ClusterShape) -> dict[str, Value]:
    """--mem-per-gpu or the partition's DefMemPerGPU (MiB) as min_mem_per_node."""
    asked = count_of(request.mem_per_tres, "gpu")
    changed: dict[str, Value] = {"mem_per_tres": ""} if request.mem_per_tres else {}
    if asked is None and request.min_mem_per_node is None and request.min_mem_per_cpu is None:
        part = _first_partition(request, shape)
        asked = part.def_mem_per_gpu_mib if part else None
    if asked:
        changed["min_mem_per_node"] = asked * request.demand.on_a_node
    return changed


def _feature(request: JobRequest, model: str) -> dict[str, Value]:
    """A GPU model as the feature of its nodes, where each GPU has a type of its own."""
    present = request.features or ""
    if model in re.split(r"[&,|]", present):
        return {}
    joined = f"({present})&{model}" if "|" in present else f"{present}&{model}"
    return {"features": joined if present else model}


def _share_per_task(request: JobRequest, share: str) -> dict[str, Value]:
    """``share`` for each task on a GPU of its own: the fields that ``--tres-per-task=gres/shard:N
    --gres-flags=one-task-per-sharing`` sets, with its binding."""
    fields: dict[str, Value] = {
        "tres_per_task": with_item(without(request.tres_per_task, "gpu", "shard"), share),
        "tres_bind": task_bind(share),
        "one_task_per_sharing": 1,
    }
    if request.num_tasks is None:
        fields["num_tasks"] = 1  # sbatch refuses requests per task without -n
    return fields


def _to_shards(request: JobRequest, decision: Decision, shape: ClusterShape) -> Rewrite:
    fields = _drop_gpus(request)
    if request.tres_bind or ("tres_per_task" in fields and shape.keeps_whole_apart):
        fields["tres_bind"] = ""  # 24.11 binds --gpus-per-task; a bind without GPUs is refused
    model = decision.gpu_type
    if model in shape.steerable:
        fields |= _feature(request, model or "")
        model = None
    kind = f"{model}:" if model else ""
    share = f"gres/shard:{kind}{decision.shards}"
    if per_task(request, shape):
        fields |= _share_per_task(request, share)
    else:
        fields["tres_per_node"] = request.per_node(share)
    fields |= _cpus(request, shape) | _memory(request, shape) | _recoverable(request)
    return _rewrite(request, fields)


def _recoverable(request: JobRequest) -> dict[str, Value]:
    """Its number of nodes, mostly one, and Requeue=1, which recovery needs; a user's --no-requeue
    stays."""
    nodes = request.demand.nodes
    fields: dict[str, Value] = {"min_nodes": nodes, "max_nodes": nodes}
    if request.batch and request.requeue is None:
        fields["requeue"] = 1
    return fields


def _rewrite(request: JobRequest, fields: dict[str, Value]) -> Rewrite:
    """A change that removes the named GPUs, with the variables of them that srun must not read."""
    return Rewrite(fields, tuple(name for name in EMPTIED if name in request.env))


def _typed(request: JobRequest, kind: str) -> dict[str, Value]:
    """The fields that name GPUs without a type, now of this type; the rest of each unchanged."""

    def typed(item: Gres) -> str:
        untyped = item.name == "gpu" and item.type is None
        return f"gres/gpu:{kind}:{item.count}" if untyped else item.raw

    return {
        name: ",".join(map(typed, items))
        for name, items in request.gpu_fields.items()
        if any(typed(item) != item.raw for item in items)
    }


def _to_slice(request: JobRequest, kind: str) -> Rewrite:
    """One MIG device. Slurm counts it as a gpu, so all options per GPU keep their meaning."""
    fields = _typed(request, kind)
    if request.demand.total is None:
        fields["tres_per_node"] = request.per_node(f"gres/gpu:{kind}:1")
    return _rewrite(request, fields | _recoverable(request))


def rewrite(request: JobRequest, decision: Decision, shape: ClusterShape) -> Rewrite:
    """The change for ``decision``; empty for a job that goes as submitted."""
    if decision.slice_mib and decision.gpu_type:
        return _to_slice(request, decision.gpu_type)
    if decision.action is Action.COLLOCATE:
        return _to_shards(request, decision, shape)
    if decision.action is Action.ASIS:
        return Rewrite()
    demand = request.demand
    if demand.total is None:  # --coloc without any GPU means one
        return Rewrite({"tres_per_node": _on_a_whole_gpu(request, shape)})
    # srun requests the GPU again for its own step, and options per GPU need one by name.
    named = request.kind == "srun" or request.tres_freq or request.ntasks_per_tres
    one = demand.total == 1 and demand.nodes == 1 and not named
    if one and not shape.keeps_whole_apart and _shards_per_gpu(request, shape):
        fields = _drop_gpus(request) | {"tres_per_node": _on_a_whole_gpu(request, shape)}
        return _rewrite(request, fields | _cpus(request, shape) | _memory(request, shape))
    if shape.whole_type:
        return Rewrite(_typed(request, shape.whole_type))
    return Rewrite()
