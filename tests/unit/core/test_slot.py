# SPDX-License-Identifier: Apache-2.0
"""Time slots: who has them, and which step comes next."""

from dataclasses import replace

import pytest

from slurm_coloc.core.slurm.job import JobView
from slurm_coloc.core.time.announce import Announced, announced
from slurm_coloc.core.time.slot import (
    Rules,
    Slot,
    State,
    Step,
    choose,
    ended_by_slot,
    given_back_s,
    limit_min,
    next_step,
    total_with,
    words,
)

RULES = Rules()
SLOT = Slot(3600, 120, "URG")
RUNS = JobView(7, "RUNNING", restarts=1, start_s=1000.0)
STATE = State(restart=1, used_s=3500.0, total_s=86400.0)


def step(view: JobView, state: State, now_s: float) -> Step:
    return next_step(view, state, SLOT, now_s, grace_s=60, behind_s=600)


@pytest.mark.parametrize(
    ("asked_s", "rules", "limit", "why_not", "length_s", "told"),
    [
        (None, RULES, None, "", None, ""),
        (0, replace(RULES, default_s=3600), None, "", None, ""),
        (None, replace(RULES, default_s=3600), None, "", 3600, "slots of 1 h: SIGURG 2 min before"),
        (None, replace(RULES, default_s=3600), None, "it is no batch job", None, ""),
        (3600, RULES, None, "it is no batch job", None, "no time slots: it is no batch job"),
        (60, RULES, None, "", 1800, "slots of 30 min (60 s asked)"),
        (10**6, RULES, None, "", 86400, "slots of 24 h ("),
        (3600, RULES, 60, "", None, "its time limit is no longer"),
        (3600, RULES, 61, "", 3600, "slots of 1 h"),
        (3600, replace(RULES, enabled=False), None, "", None, "switched off"),
    ],
)
def test_who_has_slots(
    asked_s: int | None, rules: Rules, limit: int | None, why_not: str, length_s: int | None,
    told: str,
) -> None:  # fmt: skip
    slot, line = choose(asked_s, rules, limit, why_not)
    assert (slot.length_s if slot else None) == length_s
    assert told in line and bool(told) == bool(line)


def test_a_short_slot_has_a_short_warning() -> None:
    slot, _ = choose(10, replace(RULES, min_s=1), None, "")
    assert slot == Slot(10, 5, "URG") and slot.text == "10,5,URG"


@pytest.mark.parametrize(("seconds", "text"), [(90, "90 s"), (3600, "1 h"), (3660, "1 h 1 min")])
def test_durations_for_people(seconds: int, text: str) -> None:
    assert words(seconds) == text


def test_it_is_signalled_once_and_dropped_where_it_stays() -> None:
    assert step(RUNS, STATE, 1000 + 3479) is Step.WAIT
    assert step(RUNS, STATE, 1000 + 3480) is Step.SIGNAL
    told = replace(STATE, signalled_s=4480.0)
    assert step(RUNS, told, 4480 + 179) is Step.WAIT
    assert step(RUNS, told, 4480 + 180) is Step.DROP
    assert step(RUNS, replace(told, dropped=True), 1e6) is Step.WAIT
    # colocd was away for an hour: the signal comes late, and the grace counts from it
    late = replace(STATE, signalled_s=9000.0)
    assert step(RUNS, STATE, 8999) is Step.SIGNAL and step(RUNS, late, 9100) is Step.WAIT


def test_the_last_slot_is_ended_by_its_time_limit() -> None:
    assert step(RUNS, replace(STATE, total_s=7100.0), 1e6) is Step.WAIT
    assert step(RUNS, replace(STATE, total_s=None), 1e6) is Step.SIGNAL


def test_a_last_slot_that_sharing_makes_longer_is_one_like_any_other() -> None:
    """3000 s are left: alone it would end within its slot, but its limit is stretched beyond it."""
    last = replace(STATE, total_s=6500.0)
    assert step(RUNS, replace(last, lost_s=500.0), 1e6) is Step.WAIT
    slowed = replace(last, lost_s=1500.0)
    assert step(RUNS, slowed, 1000 + 3479) is Step.WAIT
    assert step(RUNS, slowed, 1000 + 3480) is Step.SIGNAL


@pytest.mark.parametrize(
    ("lost_s", "at_s", "speed", "end_s", "factor", "given_s"),
    [
        (600, 4600, 0.5, 4600, 4, 600),
        (600, 4590, 0.5, 4600, 4, 605),  # it went on as it was
        (600, 1000, 0.5, 4600, 4, 630),  # colocd was away: nobody knows how it went on
        (600, 4700, 0.5, 4600, 4, 600),
        (3400, 4600, 0.1, 4600, 4, 2700),  # a quarter of its time counts as its own
        (600, 4600, 0.5, 4600, 1, 0),
        (0, 4300, 1.0, 4600, 4, 0),
    ],
)
def test_what_is_given_back(
    lost_s: float, at_s: float, speed: float, end_s: float, factor: float, given_s: float
) -> None:
    assert given_back_s(lost_s, at_s, speed, 1000.0, end_s, factor) == given_s


def test_back_in_the_queue() -> None:
    waits = replace(RUNS, state="PENDING", restarts=2, start_s=None)
    assert step(waits, STATE, 0) is Step.COUNT
    assert step(replace(waits, completing=True), STATE, 0) is Step.WAIT
    counted = replace(STATE, restart=2, placed=False)
    assert step(replace(waits, completing=True), counted, 0) is Step.WAIT
    assert step(waits, counted, 0) is Step.BEHIND
    assert step(waits, replace(counted, used_s=86400.0), 0) is Step.CANCEL
    placed = replace(counted, placed=True, behind_s=100.0)
    assert step(waits, placed, 699) is Step.WAIT
    assert step(waits, placed, 700) is Step.FORWARD
    assert step(replace(waits, state="RUNNING", start_s=9.0), counted, 10) is Step.BOUND


def test_it_asked_by_its_exit() -> None:
    failed = replace(RUNS, state="FAILED", completing=True)
    assert step(failed, replace(STATE, asks=True), 0) is Step.REQUEUE
    assert step(failed, STATE, 0) is Step.WAIT
    assert step(replace(failed, completing=False), STATE, 0) is Step.DONE
    ended = replace(RUNS, state="CANCELLED")
    assert step(ended, replace(STATE, asks=True), 0) is Step.DONE
    assert step(replace(RUNS, restarts=0), STATE, 0) is Step.LOST


def test_the_report_on_its_end_is_waited_for() -> None:
    """An Epilog's report may come a minute later: until then nobody knows whether it asked."""
    failed = replace(RUNS, state="FAILED")
    assert step(failed, replace(STATE, judged=False), 0) is Step.WAIT
    assert step(failed, STATE, 0) is Step.DONE


def test_whose_requeue_it_was() -> None:
    """An owner's own requeue, a preemption or a lost node early in a slot are none of ours."""
    assert ended_by_slot(True, False, 1, SLOT) and ended_by_slot(False, True, 1, SLOT)
    assert ended_by_slot(False, False, 3400, SLOT)
    assert not ended_by_slot(False, False, 1800, SLOT)


@pytest.mark.parametrize(
    ("total_s", "limit_s", "begun_s", "found_s"),
    [
        (86400, 82920, 82920, 86400),  # as it was set: the 82900 s that are left, in whole minutes
        (86400, 604800, 82920, 608280),  # a longer one since then
        (86400, 604800, 604800, 608280),  # while it waited
        (86400, 43200, 82920, 46680),
        (86400, 7200, 7200, 86400),  # Slurm itself shortened it at the start (--time-min)
        (86400, 7200, None, 86400),  # nobody saw how it began
        (86400, 604800, None, 608280),
        (86400, None, 82920, None),
        (None, 82800, 82800, 86300),
        (None, None, None, None),
    ],
)
def test_who_changes_the_limit_of_a_slot_changes_what_all_of_them_have(
    total_s: float | None, limit_s: float | None, begun_s: float | None, found_s: float | None
) -> None:
    assert total_with(total_s, 3500.0, limit_s, begun_s) == found_s


def test_limits_are_minutes() -> None:
    assert [limit_min(left) for left in (1, 60, 61, 3599)] == [1, 1, 2, 60]


@pytest.mark.parametrize(
    ("tail", "found"),
    [
        (b"", Announced()),
        (b"coloc: checkpoint saved, epoch 1, step 2\n", Announced(saved=True)),
        (b"bar 50%\rcoloc: checkpoint saved\n", Announced(saved=True)),
        (b"x\ncoloc: to be continued", Announced(goes_on=True)),
        (b"x coloc: to be continued\n", Announced()),
        (b"coloc: to be continuedly\n", Announced()),
        (b"coloc: checkpoint saved\n\ncoloc: to be continued\n", Announced(True, True)),
    ],
)
def test_what_a_log_tells(tail: bytes, found: Announced) -> None:
    assert announced(tail) == found
