# SPDX-License-Identifier: Apache-2.0
"""Takes over jobs that another colocd decided, or this one before it lost its database: their mark
and Slurm tell enough to follow, explain and recover them."""

import time

import structlog

from slurm_coloc.adapters.store import Store
from slurm_coloc.config import Config
from slurm_coloc.core.decide.rewrite import whole_gpu
from slurm_coloc.core.gpu.mig import slice_mib, slice_of
from slurm_coloc.core.records.runs import StoredDecision
from slurm_coloc.core.slurm.cluster import ClusterShape
from slurm_coloc.core.slurm.gres import PER_TASK, parse_gres, with_item, without
from slurm_coloc.core.slurm.job import NO_DECISION, OBSERVED, JobView, mark_in

log = structlog.get_logger()


def adopt(config: Config, store: Store, shape: ClusterShape | None, view: JobView) -> bool:
    """Store a decision made from a job's mark; false where it has none, or the cluster is not known
    yet. The estimate, features and options stay unknown."""
    mark = mark_in(view.admin_comment)
    if mark is None or mark.decision == NO_DECISION or mark.reason == OBSERVED or shape is None:
        return False
    per_gpu = _shards_per_gpu(view, shape)
    tres = exclusive_tres(view, shape, per_gpu)
    store.decisions.add(
        StoredDecision(
            id=mark.decision,
            cluster=shape.name,
            made_s=view.submit_s or time.time(),
            uid=view.uid,
            account=view.account or None,
            partition=view.partition or None,
            mode="on",
            action=mark.action,
            reason=mark.reason,
            detail="taken over from its mark",
            shards=mark.shards,
            shard_mib=_slice_mib(view) or config.pool.shard_mib,
            shards_per_gpu=per_gpu,
            exclusive_tres=tres,
            # Without GPUs per node or per task there is no known request for whole GPUs.
            may_requeue=view.requeue and view.batch and bool(tres),
            bound=1,
        )
    )
    store.note(mark.decision, view.job_id, "adopted", "taken over from its mark")
    log.info("adopt", jobid=view.job_id, decision=mark.decision, shards=mark.shards)
    return True


def exclusive_tres(view: JobView, shape: ClusterShape, per_gpu: int) -> str:
    """The request of the same job on one whole GPU (per task where it asks so,
    core/slurm/gres.gpu_request); "" where it asks for its GPUs otherwise."""
    gpus = [one for one in parse_gres(view.tres) if one.name in ("gpu", "shard")]
    if not gpus:
        return ""
    if gpus[0].name == "gpu" and not slice_of(gpus[0].type):
        return view.tres
    if gpus[0].name == "gpu":
        others = without(view.tres_per_node, "gpu")
        return "" if view.tres.startswith(PER_TASK) else with_item(others, whole_gpu(shape))
    # A request per task keeps its CPUs, which view.tres leaves out.
    each = view.tres.startswith(PER_TASK)
    request = view.tres_per_task if each else view.tres_per_node
    kind = gpus[0].type
    if any(kind in node.devices for node in shape.nodes):
        kind = None  # pinned: any GPU of the model will do, by its feature
    gpu = whole_gpu(shape, kind, 1, 0 if each else per_gpu)
    return (PER_TASK if each else "") + with_item(without(request, "gpu", "shard"), gpu)


def _slice_mib(view: JobView) -> int | None:
    """MiB of the MIG device that the job asks for; None without one."""
    kinds = [one.type for one in parse_gres(view.tres) if one.name == "gpu" and one.type]
    return slice_mib(kinds[0]) if kinds else None


def _shards_per_gpu(view: JobView, shape: ClusterShape) -> int:
    """The fewest shards of a GPU in the job's partitions; 0 where none has any."""
    wanted = set(view.partition.split(","))
    kinds = {one.type for one in parse_gres(view.tres) if one.name == "shard"} - {None, ""}
    found = [
        node.shards_per_gpu
        for node in shape.nodes
        if node.shards_per_gpu
        and wanted & set(node.partitions)
        and (not kinds or node.gpu_type in kinds or kinds & set(node.devices))
    ]
    return min(found, default=0)
