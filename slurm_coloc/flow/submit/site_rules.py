# SPDX-License-Identifier: Apache-2.0
"""What the site's rules say of a submission: the mode, the time slots of the job, and whether its
model shares at all after a job of it ended a neighbour; and what sbatch prints of the decision.

The mode: the off switch, then the first rule that fits, then the default.
"""

import pwd
import time

from slurm_coloc.adapters.store import Store
from slurm_coloc.config import BlameConfig, Config, Mode, ModeRule, SlotConfig
from slurm_coloc.core.decide.decision import (
    BY_USER,
    HISTORY,
    Action,
    Decision,
    Estimate,
    Reason,
)
from slurm_coloc.core.time.slot import Rules, Slot, choose
from slurm_coloc.flow.submit.message import Submission

CAREFUL: tuple[Mode, ...] = ("off", "observe", "on")


class Modes:
    """Modes of one configuration. User names are resolved once, at load: a slow directory service
    must not delay a submission."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._uids = {rule.user: _uid(rule.user) for rule in config.mode.rules if rule.user}

    def of(self, job: Submission) -> Mode:
        """on, observe or off for such a job; of several partitions the most careful one counts,
        since Slurm may start the job in any of them."""
        if self._config.daemon.off_file.exists():
            return "off"
        found = {self._one(job, name) for name in job.partitions or (None,)}
        return next(mode for mode in CAREFUL if mode in found)

    def _one(self, job: Submission, partition: str | None) -> Mode:
        for rule in self._config.mode.rules:
            if self._fits(rule, job, partition):
                return rule.mode
        return self._config.mode.default

    def _fits(self, rule: ModeRule, job: Submission, partition: str | None) -> bool:
        account = job.request.account or job.request.default_account
        return (
            (rule.partition is None or rule.partition == partition)
            and (rule.account is None or rule.account == account)
            and (rule.user is None or self._uids[rule.user] == job.request.uid)
        )


def _uid(user: str) -> int | None:
    if user.isascii() and user.isdigit():
        return int(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return None  # `coloc doctor` says so; the rule fits nobody


def slot_of(config: SlotConfig, job: Submission, decision: Decision) -> tuple[Slot | None, str]:
    """The job's time slot, and one line about it for its user, "" where there is none."""
    default_s = next(
        (rule.default_s for rule in config.partitions if rule.partition in job.partitions),
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
    if not job.request.batch:
        why_not = "it is no batch job"
    elif decision.action is not Action.COLLOCATE:
        why_not = "it does not share a GPU"
    elif job.request.requeue == 0:
        why_not = "--no-requeue"
    return choose(job.coloc.slot, rules, job.request.time_limit, why_not)


def held_more(
    config: BlameConfig, store: Store, uid: int, fingerprint: str | None, now_s: float
) -> str:
    """Until when, and why, this user's model does not share; "" where it may. A time of day is
    colocd's."""
    if config.culprit != "exclusive" or not fingerprint:
        return ""
    last = store.culprits.newest(uid, fingerprint)
    until_s = last.at_s + config.exclusive_h * 3600 if last else 0.0
    if last is None or until_s <= now_s:
        return ""
    held = f"{last.held_mib / 1024:.1f} GiB of {last.promised_mib / 1024:.1f} promised"
    until = time.strftime("%Y-%m-%d %H:%M", time.localtime(until_s))
    return f"job {last.job_id}, {held}; until {until} it does not share"


# what sbatch prints of a decision: lines that fit 80 columns; coloc explain has all of it

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
