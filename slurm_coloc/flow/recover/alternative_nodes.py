# SPDX-License-Identifier: Apache-2.0
"""Finds out whether a job can exclude one node because another can take it."""

import structlog

from slurm_coloc.core.slurm.gres import count_of
from slurm_coloc.core.slurm.job import JobView
from slurm_coloc.errors import SlurmError
from slurm_coloc.flow.cluster.context import Context

log = structlog.get_logger()


async def excluded_before(context: Context, view: JobView, node: str) -> str | None:
    """The nodes that the job's owner excludes, where another node than ``node`` could take the job
    and jobs may exclude nodes (gate.exclude_s); else None."""
    shape = context.shape()
    if shape is None or not context.config.gate.exclude_s:
        return None
    shards = count_of(view.tres, "shard") or 0
    others = [
        one
        for one in shape.nodes
        if one.name != node
        and one.usable
        and set(view.partition.split(",")) & set(one.partitions)
        and (one.shards_per_gpu >= shards if shards else one.gpus)
    ]
    if not others:
        return None
    for row in context.store.putbacks.excluding(view.decision or "", view.job_id):
        return row.was or ""  # ours are in the list now
    try:
        return await context.slurm.excluded(view.handle)
    except SlurmError as err:
        log.warning("exclude", jobid=view.job_id, error=err.message)
        return None
