# SPDX-License-Identifier: Apache-2.0
"""What is done about a job that holds a GPU and does not use it: its owner is told, warned, and by
the site's choice the job is cancelled. No job is cancelled that was not warned."""

from dataclasses import dataclass
from enum import StrEnum


class Step(StrEnum):
    """What is due."""

    WAIT = "wait"
    TELL = "tell"
    WARN = "warn"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class IdleRule:
    """``cancel_after_s``: seconds without SM activity after which a job is cancelled, 0: never;
    ``warn_s``: so long before that its owner is warned."""

    tell: bool = True
    cancel_after_s: int = 0
    warn_s: int = 600


def next_step(rule: IdleRule, idle_s: float, told: bool, warned_s: float | None) -> Step:
    """The step that is due for a job that is idle for ``idle_s`` seconds.

    ``told``: its owner heard of it in this spell; ``warned_s``: seconds since the warning, None:
    there was none yet. A warned job has its full time, also where colocd was away or the rule is
    new.
    """
    if rule.cancel_after_s:
        if warned_s is not None:
            due = idle_s >= rule.cancel_after_s and warned_s >= rule.warn_s
            return Step.CANCEL if due else Step.WAIT
        if idle_s >= rule.cancel_after_s - rule.warn_s:
            return Step.WARN
    return Step.TELL if rule.tell and not told else Step.WAIT


def left_s(rule: IdleRule, idle_s: float) -> float:
    """Seconds from a warning until the job may be cancelled."""
    return max(rule.cancel_after_s - idle_s, float(rule.warn_s))
