# SPDX-License-Identifier: Apache-2.0
"""What --coloc-policy names: how much of a GPU a job that may share gets."""

from collections.abc import Mapping
from types import MappingProxyType

from slurm_coloc.core.decide.decide import History, Question, Reserve, Rules, exclusive
from slurm_coloc.core.decide.decision import Action, Decision, Reason
from slurm_coloc.core.decide.request import gpu_demand
from slurm_coloc.core.decide.sizing import shards_needed
from slurm_coloc.core.slurm.cluster import SharedGpu
from slurm_coloc.errors import UsageFault


def collocate(
    question: Question, kinds: tuple[SharedGpu, ...], history: History, rules: Rules
) -> Decision:
    """Reserve on the smallest kind of GPU that holds the job with room to spare."""
    estimate = question.estimate
    if estimate is None:
        return exclusive(question.no_estimate, question.detail)
    if not kinds:
        return exclusive(Reason.NO_SHARED_GPU)
    typed = gpu_demand(question.request).type
    for position, kind in enumerate(kinds):
        shards = shards_needed(estimate, kind.shards, rules.sizing)
        if shards >= kind.shards:
            continue
        share_mib = shards * rules.sizing.shard_mib
        if history.oom_share_mib is not None and history.oom_share_mib >= share_mib:
            return exclusive(Reason.HISTORY_OOM, f"{history.oom_share_mib} MiB")
        # On the smallest kind any GPU will do; on a larger one the type must be named, or
        # Slurm would let the job wait for a GPU that can never hold it.
        named = typed or (kind.type if position else None)
        if position and named is None:
            break
        return Decision(Action.COLLOCATE, Reason.FITS, shards, named, kind.shards)
    largest_mib = kinds[-1].shards * rules.sizing.shard_mib
    return exclusive(Reason.FILLS_GPU, f"{estimate.upper_mib} MiB of {largest_mib} MiB")


def whole(
    question: Question, kinds: tuple[SharedGpu, ...], history: History, rules: Rules
) -> Decision:
    """A whole GPU whatever the estimate says."""
    return exclusive(Reason.USER_EXCLUSIVE)


WAYS: Mapping[str, Reserve] = MappingProxyType({"collocate": collocate, "exclusive": whole})


def reserve_as(name: str) -> Reserve:
    """The way called ``name``; raises UsageFault naming those that exist."""
    try:
        return WAYS[name]
    except KeyError:
        raise UsageFault(f"unknown policy {name!r}: one of {', '.join(sorted(WAYS))}") from None
