# SPDX-License-Identifier: Apache-2.0
"""What the site's rules say of a submission: the mode, the time slots of the job, and whether its
model shares at all after a job of it ended a neighbour.

The mode: the off switch, then the first rule that fits, then the default.
"""

import pwd
import time

from slurm_coloc.adapters.store import Store
from slurm_coloc.config import BlameConfig, Config, Mode, ModeRule, SlotConfig
from slurm_coloc.core.decide.decision import Action, Decision
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
            and (rule.account is None or rule.account.lower() == account)
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
