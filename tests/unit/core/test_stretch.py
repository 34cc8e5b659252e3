# SPDX-License-Identifier: Apache-2.0
"""Time limits of jobs that share: never shorter, never past a ceiling, late, and in few steps."""

from math import ceil, log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_coloc.core.time.stretch import (
    Ceiling,
    Reserved,
    Rules,
    Stretch,
    Timed,
    due_s,
    margin_s,
    reserved_ceiling,
    stretch,
    wanted_s,
)

RULES = Rules()
HOUR = 3600.0
LOOK_S, KILL_S = 5.0, 30.0


def job(**values: float) -> Timed:
    wish = {"start_s": 0.0, "base_s": HOUR, "limit_s": HOUR, "lost_s": 600.0, "speed": 0.8}
    return Timed(**(wish | values))


def test_it_is_owed_what_it_lost_and_lent_one_margin_at_most() -> None:
    # 3300 s ran, 600 lost: 900 s of work are left, which take 225 s more at this speed
    assert wanted_s(job(), 3300, RULES) == pytest.approx(HOUR + 600 + 225)
    assert wanted_s(job(speed=0.3), 3300, RULES) == pytest.approx(HOUR + 600 + 300)
    assert wanted_s(job(speed=1.0), 3300, RULES) == HOUR + 600


def test_it_is_late() -> None:
    assert due_s(job(), RULES) == HOUR - 300
    assert margin_s(60, RULES) == 15


def test_alone_nothing_is_stretched() -> None:
    assert stretch(job(lost_s=0, speed=1.0), 3590, RULES, []) == Stretch(None)


def test_whole_minutes() -> None:
    assert stretch(job(lost_s=1, speed=1.0), 3590, RULES, []) == Stretch(61)


@pytest.mark.parametrize(
    ("ceiling_s", "found"),
    [
        (2 * HOUR, Stretch(74)),
        (HOUR + 300, Stretch(65, "x")),
        (HOUR + 59, Stretch(None, "x")),
        (HOUR, Stretch(None, "x")),
        (600, Stretch(None, "x")),
    ],
)
def test_ceilings(ceiling_s: float, found: Stretch) -> None:
    assert stretch(job(), 3300, RULES, [Ceiling(9 * HOUR, "y"), Ceiling(ceiling_s, "x")]) == found


def test_so_many_times_the_original_at_most() -> None:
    found = stretch(job(lost_s=3000, speed=0.2), 3300, Rules(1.5), [])
    assert found == Stretch(90, "slowdown.max_factor 1.5")


def test_reservations() -> None:
    def ceiling(start_s: float | None, end_s: float | None, own: str = "") -> float | None:
        one = Reserved("r", "n1", start_s, end_s)
        found = reserved_ceiling(one, own, 1000, 2000)
        return found.limit_s if found else None

    assert ceiling(5000, 6000) == 4000  # its begin
    assert ceiling(1500, 6000) == 500  # it has begun beside the job: never longer
    assert ceiling(1500, 6000, "a,r") == 5000  # the job is inside
    assert ceiling(900, 2000) is None and ceiling(None, None) is None


@st.composite
def lives(draw: st.DrawFn) -> tuple[float, float, list[float]]:
    """A limit (s), how much of it the work takes, and the speed in each tenth of it."""
    base_s = draw(st.integers(1, 60 * 24 * 7)) * 60.0
    part = draw(st.floats(0.05, 1.0))
    speeds = draw(st.lists(st.floats(0.26, 1.0), min_size=10, max_size=10))
    return base_s, part, speeds


def live(base_s: float, work_s: float, speeds: list[float]) -> tuple[str, list[int]]:
    """How a job ends that is looked at every LOOK_S, and its limits on the way. Slurm ends it at
    the very second of its limit here, which it does not: it looks twice a minute."""
    at = done = lost = 0.0
    limit_s, limits = base_s, []
    while True:
        speed = speeds[min(9, int(10 * done / work_s))]
        one = Timed(0.0, base_s, limit_s, lost, speed)
        if at >= due_s(one, RULES) - LOOK_S:
            found = stretch(one, at, RULES, [])
            if found.minutes is not None:
                assert found.minutes * 60 > limit_s
                limit_s = found.minutes * 60.0
                limits.append(found.minutes)
        # To the next moment at which something can happen.
        begins_s = due_s(Timed(0.0, base_s, limit_s, lost, speed), RULES) - LOOK_S
        step = max(LOOK_S, min(begins_s - at, (work_s / 10) / speed))
        step = min(step, limit_s - at, (work_s - done) / speed)
        at, done, lost = at + step, done + step * speed, lost + step * (1 - speed)
        if done >= work_s - 1e-6:
            return "done", limits
        if at >= limit_s - 1e-6:
            return "timeout", limits


@given(lives())
@settings(max_examples=150, deadline=None)
def test_who_would_be_in_time_alone_is_in_time(life: tuple[float, float, list[float]]) -> None:
    base_s, part, speeds = life
    end, limits = live(base_s, base_s * part, speeds)
    assert end == "done"
    if limits:
        assert limits[-1] * 60 <= ceil(base_s * RULES.max_factor / 60) * 60
    # What is left shrinks by the loss each time, to one margin; then a minute or more at a time.
    shrinks = log(max(2.0, base_s / margin_s(base_s, RULES))) / -log(1 - min(speeds))
    assert len(limits) <= 3 * shrinks + margin_s(base_s, RULES) * 3 / 60 + 3


@given(lives())
@settings(max_examples=60, deadline=None)
def test_who_would_be_late_alone_is_late(life: tuple[float, float, list[float]]) -> None:
    base_s, part, speeds = life
    work_s = base_s * (2 + part)
    end, limits = live(base_s, work_s, speeds)
    assert end == "timeout"
    most = max(1 / min(speeds), 1.0) * base_s + margin_s(base_s, RULES) + 60
    assert all(minutes * 60 <= most for minutes in limits)
