# SPDX-License-Identifier: Apache-2.0
"""Time slots: whether a job has them, when one ends, and which step comes next.

The time limit stays the user's; only colocd knows the slot's end, and Slurm never kills at it:
while colocd is away a slot only lasts longer. Each step follows from what Slurm shows now.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from math import ceil

from slurm_coloc.core.slurm.job import JobView

# A run without a noted signal (colocd was away) that asked to go on counts as a whole slot if it
# lasted this part of one.
NEARLY = 0.9
# The Comment of a job that has saved and cannot leave: `coloc: saved $(date +%s)`.
_SAVED = re.compile(r"coloc: saved (\d{9,11})(?!\d)")
# The clocks of a node and of colocd may be so far apart.
CLOCKS_S = 5.0
# flow/time/limits writes what a run lost at least this often (s). Over a longer gap, while colocd
# was away, the last speed says nothing.
GAP_S = 60.0


@dataclass(frozen=True, slots=True)
class Rules:
    """What the site allows; seconds. ``default_s``: for this job's partition, 0: none."""

    enabled: bool = True
    default_s: int = 0
    min_s: int = 1800
    max_s: int = 86400
    warn_s: int = 120
    signal: str = "URG"


@dataclass(frozen=True, slots=True)
class Slot:
    """Seconds of a slot, seconds before its end that the signal comes, and the signal."""

    length_s: int
    warn_s: int
    signal: str

    @property
    def text(self) -> str:
        """The slot as COLOC_SLOT in the job's environment."""
        return f"{self.length_s},{self.warn_s},{self.signal}"


def slot_from(text: str) -> Slot:
    """A slot from its ``text``."""
    length_s, warn_s, signal = text.split(",")
    return Slot(int(length_s), int(warn_s), signal)


def words(seconds: float) -> str:
    """A duration for people: ``90 s``, ``30 min``, ``2 h 30 min``.

    >>> words(90), words(1800), words(9000), words(7200)
    ('90 s', '30 min', '2 h 30 min', '2 h')
    """
    whole = round(seconds)
    if whole < 120 or whole % 60:
        return f"{whole} s"
    hours, minutes = divmod(whole // 60, 60)
    return " ".join(f"{n} {unit}" for n, unit in ((hours, "h"), (minutes, "min")) if n)


def choose(
    asked_s: int | None, rules: Rules, limit_min: int | None, why_not: str
) -> tuple[Slot | None, str]:
    """A job's slot, and one line for its user ("" where there is nothing to say).

    ``asked_s``: --coloc-slot, 0: none wanted, None: not given. ``limit_min``: its time limit in
    minutes where it gave one. ``why_not``: why a job like this has no slots, "" where it may.
    """
    wanted = rules.default_s if asked_s is None else asked_s
    if not wanted:
        return None, ""
    if not rules.enabled:
        why_not = "slots are switched off here"
    if why_not:
        return None, f"no time slots: {why_not}" if asked_s else ""
    length_s = min(max(wanted, rules.min_s), rules.max_s)
    if limit_min is not None and limit_min * 60 <= length_s:
        text = f"no time slots: its time limit is no longer than one ({words(length_s)})"
        return None, text if asked_s else ""
    slot = Slot(length_s, min(rules.warn_s, length_s // 2), rules.signal)
    bound = "" if length_s == wanted else f" ({words(wanted)} asked)"
    return slot, (
        f"slots of {words(length_s)}{bound}: SIG{slot.signal} {words(slot.warn_s)} before the end;"
        " --time is for all"
    )


class Step(StrEnum):
    """The next thing to do to a job with slots."""

    WAIT = "wait"
    SIGNAL = "signal"
    DROP = "drop"  # it did not leave: it has no slots any more
    CUT = "cut"  # in place of DROP for one that has saved: it is put back
    COUNT = "count"  # a slot ended, the job is back: count its time
    REQUEUE = "requeue"  # it asked to go on by its exit
    BEHIND = "behind"  # bound its time, and let its equals go first
    BOUND = "bound"  # it runs again already: bound its time
    FORWARD = "forward"  # it has waited behind them long enough
    CANCEL = "cancel"  # all of its time is used
    DONE = "done"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class State:
    """What is known of a job with slots; seconds and Unix seconds.

    ``restart``: of the last run seen and accounted for; ``signalled_s``: when that run had its
    signal; ``used_s``: by the slots that ended; ``total_s``: of all slots, None: unlimited;
    ``asks``: that run ended and asked to go on; ``judged``: how it ended is known, and nothing more
    is done for it; ``placed``: the present run's time limit is set; ``behind_s``: since when it
    waits behind others, None: it does not; ``lost_s``: what the present run lost beside others and
    its time limit is to give back.
    """

    restart: int
    used_s: float
    total_s: float | None
    signalled_s: float | None = None
    asks: bool = False
    judged: bool = True
    placed: bool = True
    behind_s: float | None = None
    dropped: bool = False
    lost_s: float = 0.0

    @property
    def left_s(self) -> float | None:
        """Seconds that it may still run, alone."""
        return None if self.total_s is None else self.total_s - self.used_s

    def is_last(self, slot: Slot) -> bool:
        """Whether all time that is left fits in the present slot, so that the time limit ends the
        job. A limit that is stretched beyond the slot's end makes it an ordinary slot."""
        return self.left_s is not None and self.left_s + self.lost_s <= slot.length_s


def limit_min(left_s: float) -> int:
    """Minutes of a time limit for the time that is left, rounded up."""
    return max(1, ceil(left_s / 60))


def total_with(
    total_s: float | None, used_s: float, limit_s: float | None, begun_s: float | None
) -> float | None:
    """The time of all slots, None: unlimited, by the limit that the last run has now, ``limit_s``:
    where its owner or an admin has changed that since it was set, all slots have so much more or
    less. Not where Slurm itself shortened it at the start (--time-min): ``begun_s``, what the run
    began with, None: nobody saw that.
    """
    if total_s is None or limit_s is None:
        return None if limit_s is None else used_s + limit_s
    set_s = 60.0 * limit_min(total_s - used_s)
    return total_s + limit_s - min(set_s, limit_s if begun_s is None else begun_s)


def next_step(
    view: JobView, state: State, slot: Slot, now_s: float, grace_s: float, behind_s: float
) -> Step:
    """The step that is due for a job as Slurm shows it."""
    if view.restarts < state.restart:
        return Step.LOST  # another job under the same id
    if view.restarts > state.restart:
        # Its Epilog tells how it left: until then it does not start anyway.
        return Step.WAIT if view.completing else Step.COUNT
    if view.state == "PENDING":
        return _waiting(view, state, now_s, behind_s)
    if view.state in ("FAILED", "COMPLETED") and state.asks:
        return Step.REQUEUE
    if view.ended:
        return Step.DONE if state.judged else Step.WAIT
    if view.state != "RUNNING" or view.completing:
        return Step.WAIT
    return _running(view, state, slot, now_s, grace_s)


def _waiting(view: JobView, state: State, now_s: float, behind_s: float) -> Step:
    if not state.placed:
        if view.completing:
            return Step.WAIT
        used_up = state.left_s is not None and state.left_s <= 0
        return Step.CANCEL if used_up else Step.BEHIND
    if state.behind_s is not None and now_s - state.behind_s >= behind_s:
        return Step.FORWARD
    return Step.WAIT


def _running(view: JobView, state: State, slot: Slot, now_s: float, grace_s: float) -> Step:
    if not state.placed:
        return Step.BOUND
    if state.dropped or view.start_s is None:
        return Step.WAIT
    if state.is_last(slot):
        return Step.WAIT  # its time limit ends it
    if state.signalled_s is not None:
        over_s = state.signalled_s + slot.warn_s + grace_s
        return Step.DROP if now_s >= over_s else Step.WAIT
    due = now_s >= view.start_s + slot.length_s - slot.warn_s
    return Step.SIGNAL if due else Step.WAIT


def saved_since(comment: str, signalled_s: float) -> bool:
    """Whether a job's Comment says that it has saved since its signal.

    >>> saved_since("mine; coloc: saved 1700000100", 1700000000.0)
    True
    """
    return any(int(at_s) >= signalled_s - CLOCKS_S for at_s in _SAVED.findall(comment))


def given_back_s(
    lost_s: float, at_s: float, speed: float, start_s: float, end_s: float, max_factor: float
) -> float:
    """Seconds that a run from ``start_s`` to ``end_s`` lost beside others, which do not count as
    its own.

    ``lost_s`` was counted up to ``at_s``, when it ran at ``speed``; the run is assumed to have kept
    that speed to its end. As for time limits (slowdown.max_factor), no more than the run's own time
    times max_factor is counted.
    """
    gap_s = min(max(0.0, end_s - at_s), GAP_S)
    most_s = max(0.0, end_s - start_s) * (1.0 - 1.0 / max_factor)
    return min(lost_s + gap_s * max(0.0, 1.0 - speed), most_s)


def last_s(start_s: float, seen_s: float, slot: Slot, grace_s: float) -> float:
    """The latest end that counts of a run: with its slot, or soon after it was last seen. While
    colocd is away nobody sees a run end."""
    return max(start_s + slot.length_s, seen_s + slot.warn_s + grace_s)


def ended_by_slot(signalled: bool, asked: bool, ran_s: float, slot: Slot) -> bool:
    """Whether a run that is back in the queue left at its slot's end: it had its signal, asked to
    go on, or lasted nearly a slot. Else its owner or Slurm put it back."""
    return signalled or asked or ran_s >= NEARLY * (slot.length_s - slot.warn_s)
