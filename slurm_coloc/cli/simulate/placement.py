# SPDX-License-Identifier: Apache-2.0
"""What a site's [placement] is in a simulation."""

from slurm_coloc.config import Config
from slurm_coloc.core.place.gate_wait import ahead_s
from slurm_coloc.core.place.steering import Rules
from slurm_coloc.sim.policies import policy as policy_named
from slurm_coloc.sim.polled import MORE_S, Times
from slurm_coloc.sim.setting import Setting
from slurm_coloc.sim.steered import Steered

#: How Slurm itself places shares (select/cons_tres without LL_SHARED_GRES): what an admin gets now.
PLACED_TODAY = "first-fit"
#: with LL_SHARED_GRES
SPREAD_TODAY = "magm"


def placed_by(config: Config) -> str:
    """The policy that a site's own shares are placed by: steered its own, natively Slurm's."""
    place = config.placement
    if place.mode == "steered":
        return place.policy
    return SPREAD_TODAY if place.idle_first is True else PLACED_TODAY


def steered_by(config: Config, setting: Setting, *, plans: bool) -> Steered:
    """What colocd does by the site's [placement], for jobs that share as the scenario says."""
    place, keys = config.placement, setting.conditions
    rules = Rules(
        policy=place.policy,
        smact_gate=place.smact_gate,
        max_pin_s=place.max_pin_s,
        ahead=place.ahead,
        shard_mib=config.pool.shard_mib,
        max_jobs=keys.jobs,
        window_s=setting.monitor.window_s,
        whole_first=place.whole_first,
        share_with=keys.share_with,
        idle_first=keys.idle_first or place.idle_first,
        reorder=plans,
    )
    waits_s = ahead_s(place.interval_s) + MORE_S
    times = Times(place.interval_s, waits_s, shows_s=setting.launch_s + setting.ramp_s)
    return Steered(policy_named(rules.policy), rules, times, plans)
