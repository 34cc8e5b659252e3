# SPDX-License-Identifier: Apache-2.0
"""From an estimate to a number of shards."""

import math
from dataclasses import dataclass

from slurm_coloc.core.decide.decision import Estimate


@dataclass(frozen=True, slots=True)
class Sizing:
    """How a GPU is cut: MiB a shard, jobs a GPU, bound on the sum of solo SM activities (None: SM
    activity takes no shards)."""

    shard_mib: int = 1024
    max_jobs_per_gpu: int = 8
    compute_budget: float | None = 1.7


def shards_needed(estimate: Estimate, shards_per_gpu: int, sizing: Sizing) -> int:
    """Shards that the job must reserve on a GPU of ``shards_per_gpu``; may exceed the GPU.

    The larger of what its memory needs, of its part of the compute budget (where the SM activity
    is known), and of one GPU's shards over the jobs that a GPU may hold.
    """
    memory = math.ceil(estimate.upper_mib / sizing.shard_mib)
    jobs = math.ceil(shards_per_gpu / sizing.max_jobs_per_gpu)
    compute = 0
    if estimate.smact is not None and sizing.compute_budget is not None:
        # A job alone may use all SMs; it must still be placeable, hence the bound.
        compute = min(
            math.ceil(estimate.smact / sizing.compute_budget * shards_per_gpu), shards_per_gpu - 1
        )
    return max(1, memory, jobs, compute)
