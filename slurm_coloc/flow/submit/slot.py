# SPDX-License-Identifier: Apache-2.0
"""Stage decide, time slots: whether a job that is submitted has them."""

from slurm_coloc.config import SlotConfig
from slurm_coloc.core.decide.decision import Action, Decision
from slurm_coloc.core.slurm.cluster import ClusterShape, wanted_partitions
from slurm_coloc.core.time.slot import Rules, Slot, choose
from slurm_coloc.flow.submit.message import SubmitMessage


def slot_of(
    config: SlotConfig, asked: SubmitMessage, decision: Decision, shape: ClusterShape
) -> tuple[Slot | None, str]:
    """A job's slot, and one line about it for its user, "" where there is none."""
    wanted = wanted_partitions(asked.request(), shape)
    default_s = next(
        (rule.default_s for rule in config.partitions if rule.partition in wanted),
        config.default_s,
    )
    rules = Rules(
        config.enabled,
        default_s,
        config.min_s,
        config.max_s,
        config.signal_before_s,
        config.signal,
    )
    why_not = ""
    if not asked.batch:
        why_not = "it is no batch job"
    elif decision.action is not Action.COLLOCATE:
        why_not = "it does not share a GPU"
    elif asked.requeue == 0:
        why_not = "--no-requeue"
    return choose(asked.coloc.slot, rules, asked.time_limit, why_not)
