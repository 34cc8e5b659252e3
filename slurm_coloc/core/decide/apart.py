# SPDX-License-Identifier: Apache-2.0
"""Whether something keeps a share off other users' GPUs where the site wants that (sharing.with).

Slurm places shares by their count alone. Users are kept apart by ExclusiveUser of the partition, or
by colocd's pins (steered placement); without a pin a job asks for a whole GPU there
(flow/place/at_submit).
"""

from slurm_coloc.core.decide.decision import Rules
from slurm_coloc.core.decide.request import JobRequest
from slurm_coloc.core.slurm.cluster import (
    ClusterShape,
    features_fit,
    keeps_users_apart,
    nodes_of,
    plain,
    wanted_partitions,
)

#: what a site can do, in the words of the decision, `coloc doctor` and `coloc config check`
WAYS = (
    'placement.mode = "steered"',
    "PartitionName=... ExclusiveUser=YES",
    'sharing.with = "anyone"',
)


def open_partitions(names: tuple[str, ...], shape: ClusterShape) -> tuple[str, ...]:
    """Those of these partitions in which Slurm may put two users' shares on one GPU."""
    return tuple(name for name in names if not keeps_users_apart((name,), shape))


def not_apart(request: JobRequest, shape: ClusterShape, rules: Rules) -> str:
    """Why nothing would keep a share of this job off other users' GPUs; "" where something does, or
    where the site does not ask for it."""
    if rules.share_with == "anyone":
        return ""
    names = wanted_partitions(request, shape)
    left = open_partitions(names, shape)
    if not left and names:
        return ""
    if not rules.steered:
        return f"partition {', '.join(left) or 'unknown'} has no ExclusiveUser=YES"
    if request.reservation or not plain(request.features):
        return "colocd pins no job with a reservation or a complex constraint"
    there = [node for node in nodes_of(request, shape) if node.name in rules.steered]
    if not any(features_fit(request.features, node.features) for node in there):
        return "none of its nodes is steered"
    return ""
