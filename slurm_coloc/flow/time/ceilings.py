# SPDX-License-Identifier: Apache-2.0
"""Stage watch, time limits: how long a job may run at most, by partition, QOS and reservations."""

from slurm_coloc.core.decide.request import JobRequest
from slurm_coloc.core.slurm.hosts import in_nodes
from slurm_coloc.core.slurm.job import JobView, Terms
from slurm_coloc.core.slurm.qos_limits import limit_owners, longest
from slurm_coloc.core.time.stretch import MINUTE_S, Ceiling, reserved_ceiling
from slurm_coloc.errors import SlurmError
from slurm_coloc.flow.cluster.context import Context


async def ceilings(
    context: Context, view: JobView, terms: Terms, start_s: float, now: float
) -> list[Ceiling]:
    """The limits of the site on a job's run time. Raises SlurmError, also while they are not known:
    then nothing is changed."""
    shape, limits = context.shape(), context.limits()
    if shape is None or limits is None:
        raise SlurmError("the cluster or its limits are not known yet", "slurm-away")
    found = []
    part = shape.partition(view.partition)
    if part is not None and part.max_time_min is not None:
        limit_s = part.max_time_min * MINUTE_S
        found.append(Ceiling(limit_s, f"MaxTime of partition {part.name}"))
    asked = JobRequest(view.uid, account=view.account or None, qos=view.qos or None)
    holder = longest(limit_owners(asked, view.partition, shape, limits))
    if holder is not None and holder.max_wall_s is not None:
        found.append(Ceiling(holder.max_wall_s, f"MaxWall of {holder.title}"))
    own = [node.name for node in shape.nodes if in_nodes(view.nodes, node.name)]
    for one in await context.slurm.reservations():
        if any(in_nodes(one.nodes, name) for name in own):
            ceiling = reserved_ceiling(one, terms.reservation, start_s, now)
            found += [ceiling] if ceiling else []
    return found
