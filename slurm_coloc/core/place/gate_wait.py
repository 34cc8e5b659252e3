# SPDX-License-Identifier: Apache-2.0
"""Ways to keep a job from starting for a while without losing its place in the queue.

Tried on 24.11.5 with slurmdbd: a future start time takes all age from a job (AccrueTime is counted
anew), unless PriorityFlags has ACCRUE_ALWAYS; a constraint that no node meets takes none
(core/place/node_gate, 26.05.5 too), and other jobs may start before it. A start time expires by
itself, so it is preferred where age does not count. Changing the request or its nodes costs none.
"""

from collections.abc import Mapping
from enum import StrEnum

from slurm_coloc.core.slurm.cluster import ClusterShape

#: A start time of ours lies so many rounds ahead, and so many seconds at least: on a busy machine a
#: round of a second comes four seconds late, and the job would have started.
AHEAD, LEAST_S = 3, 15.0


def ahead_s(interval_s: float) -> float:
    """Seconds that a start time of ours lies ahead, with so many from one round to the next."""
    return max(AHEAD * interval_s, LEAST_S)


class Way(StrEnum):
    START = "start"  # a future start time, renewed
    EXTRA = "extra"  # a constraint on the nodes' Extra
    NONE = "none"  # not at all


def age_counts(conf: Mapping[str, str]) -> bool:
    """Whether a job loses age while it is not eligible, under this slurm.conf."""
    weight = conf.get("PriorityWeightAge", "0")
    return (
        conf.get("PriorityType", "").endswith("multifactor")
        and weight.isdigit()
        and int(weight) > 0
        and "ACCRUE_ALWAYS" not in conf.get("PriorityFlags", "").upper()
    )


def way_of(shape: ClusterShape) -> Way:
    """The best way that this cluster allows."""
    if not shape.age_counts:
        return Way.START
    return Way.EXTRA if shape.constraints else Way.NONE
