# SPDX-License-Identifier: Apache-2.0
"""What the configuration says of steering."""

from slurm_coloc.config import Config
from slurm_coloc.core.place.gate_wait import Way
from slurm_coloc.core.place.steering import Rules


def rules_of(config: Config, way: Way = Way.START) -> Rules:
    """The part of [placement] and [sharing] that decides. ``way``: how a job can wait at the gate;
    without a way that keeps its age, no job waits there."""
    place = config.placement
    return Rules(
        policy=place.policy,
        smact_gate=1.0 if way is Way.NONE else place.smact_gate,
        stale_s=place.stale_s,
        max_pin_s=place.max_pin_s,
        ahead=place.ahead,
        shard_mib=config.pool.shard_mib,
        max_jobs=config.pool.max_jobs_per_gpu,
        multi_user=config.sharing.users == "all",
        window_s=config.agent.window_s,
        whole_first=place.whole_first,
        share_with=config.sharing.with_,
        idle_first=place.idle_first,
        reorder=place.plan == "order" and way is not Way.NONE,
    )
