# SPDX-License-Identifier: Apache-2.0
"""What sbatch prints of a decision: lines that fit 80 columns. `coloc explain` has all of it."""

from slurm_coloc.core.decide.decision import (
    BY_USER,
    Action,
    Decision,
    Estimate,
    Reason,
)
from slurm_coloc.core.decide.learned import HISTORY

COLUMNS = 80
BEFORE = "sbatch: coloc: "  # what stands in front of each line
ROOM = COLUMNS - len(BEFORE)
#: of reasons that are longer than what fits beside "whole GPU: "
BRIEF = {
    Reason.GPU_OPTIONS: "options per GPU (--gpu-freq, ...) need a whole one",
    Reason.MULTI_GPU: "several GPUs share only with one for each task",
    Reason.MULTI_GPU_SITE: "several GPUs need MULTIPLE_SHARING_GRES_PJ here",
    Reason.SPLIT_SHARE: "this Slurm may split a share over GPUs",
    Reason.SUSPENDS: "its partition suspends jobs, with their GPU memory",
    Reason.NO_SCRIPT: "--coloc=auto knows a job by its batch script",
    Reason.BAD_SUMMARY: "bad summary",
    Reason.NO_ESTIMATE: "no estimate",
    Reason.FILLS_GPU: "it needs more than a share",
    Reason.FIRST_RUN: "no earlier run of this script was measured yet",
    Reason.USER_BUSY: "other summaries of yours were being estimated",
    Reason.NOT_PREPARED: "not estimated yet; submitted again it may share",
    Reason.HISTORY_OOM: "this model ran out of GPU memory in such a share",
    Reason.HELD_MORE: "a job of this model held more than its share",
    Reason.SHARING_WITH: "nothing here keeps it off other users' GPUs",
}


def fitted(text: str) -> str:
    """``text``, cut where it does not fit."""
    return text if len(text) <= ROOM else f"{text[: ROOM - 3].rstrip()}..."


def line_of(decision: Decision, estimate: Estimate | None, shard_mib: int, *, learned: bool) -> str:
    """The decision in one line. ``learned``: earlier runs have changed the estimate."""
    if decision.action is Action.ASIS:
        return fitted(f"unchanged: {_why(decision)}")
    if decision.action is Action.EXCLUSIVE:
        return fitted(f"whole GPU: {_why(decision)}")
    assert estimate is not None  # a job is collocated only with an estimate
    most = f"at most {_gib(estimate.upper_mib)}"
    by = "earlier runs:" if learned else "estimate"
    figures = f"{by} {_gib(estimate.memory_mib)}, {most}"
    if estimate.name == BY_USER:
        figures = most = "as --coloc-memory says"
    elif estimate.name == HISTORY:
        figures = f"earlier runs: {most}"
    if decision.slice_mib:
        size = f"gets a MIG device {decision.gpu_type}, {_gib(decision.slice_mib)} GiB"
    else:
        several = decision.gpus > 1
        what, each = (f"{decision.gpus} GPUs", " each") if several else ("a GPU", "")
        mine, all_of = (_gib(n * shard_mib) for n in (decision.shards, decision.shards_per_gpu))
        size = f"shares {what}: {mine} of {all_of} GiB{each}"
    whole = f"{size} ({figures})"
    return whole if len(whole) <= ROOM else fitted(f"{size} ({most})")


def _why(decision: Decision) -> str:
    text = BRIEF.get(decision.reason, decision.reason.text)
    return f"{text}: {decision.detail}" if decision.detail else text


def _gib(mib: int) -> str:
    return f"{mib / 1024:.1f}"
