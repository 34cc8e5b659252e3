# SPDX-License-Identifier: Apache-2.0
"""Whether a cluster can be steered, pure."""

from slurm_coloc.core.slurm.cluster import MULTI_GPU_PARAMETER, ClusterShape
from slurm_coloc.core.slurm.qos_limits import GPU, SiteLimits
from slurm_coloc.core.slurm.releases import PINS, shown


def refusals(shape: ClusterShape, limits: SiteLimits) -> list[str]:
    """The reasons why jobs cannot be pinned on this cluster; none where they can."""
    found = []
    if not PINS.holds(shape.release):
        found.append(
            f"Slurm {shown(shape.release)} cannot be steered, {shown(PINS.first)} and later can"
        )
    if shape.splits_shares:
        found.append(
            f"with {MULTI_GPU_PARAMETER} shares are asked for per task, which are not pinned"
        )
    found += typed_limits(shape, limits)
    return found


def typed_limits(shape: ClusterShape, limits: SiteLimits) -> list[str]:
    """Limits on a model of GPUs, which have no effect where each GPU has a type of its own."""
    models = shape.steerable
    return sorted(
        f"{option} {tres} of {holder.title} counts a type that no GPU has when each has its own"
        for holder in limits.owners()
        for option, counts in holder.limits.items()
        for tres in counts
        if tres.startswith(f"{GPU}:") and tres.removeprefix(f"{GPU}:") in models
    )
