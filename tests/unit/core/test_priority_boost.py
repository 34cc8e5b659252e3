# SPDX-License-Identifier: Apache-2.0
"""Where a recovered job stands: never before others who stood before it, but for a few times."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from slurm_coloc.core.recover.recovery import (
    HIGHEST_PRIORITY,
    Place,
    priority_for,
    raised_priority,
    settled_priority,
)
from slurm_coloc.core.slurm.job import JobView

JOB = JobView(7, "PENDING", uid=1000, priority=400, partition="main", qos="normal")
OTHER = JobView(8, "PENDING", uid=1001, priority=5000, partition="main", qos="high")
TOP = 2**32 - 1000  # where priority/basic begins


@given(present=st.integers(1, 2**32 - 1), configured=st.integers(1, 2**31))
def test_a_raised_priority_is_never_lower(present: int, configured: int) -> None:
    raised = raised_priority(present, configured)
    assert raised >= min(present, HIGHEST_PRIORITY)
    assert 0 < raised <= HIGHEST_PRIORITY
    assert raised_priority(1000, 100_000) == 100_000


def test_first_in_line() -> None:
    assert priority_for(JOB, Place(True, 700), 100_000, []) == 100_000
    # A second recovery starts from the job's own priority, not from the raised one.
    again = replace(JOB, priority=100_000)
    assert priority_for(again, Place(True, 700), 100_000, []) is None


def test_not_before_others_of_another_qos_that_stood_before_it() -> None:
    assert priority_for(JOB, Place(True, 700), 100_000, [OTHER]) == 4999
    same_qos = replace(OTHER, qos="normal")
    mine = replace(OTHER, uid=1000)
    elsewhere = replace(OTHER, partition="cpu,debug")
    behind = replace(OTHER, priority=600)
    others = [same_qos, mine, elsewhere, behind]
    assert priority_for(JOB, Place(True, 700), 100_000, others) == 100_000
    # Its own place is its right, whoever stands above it.
    assert priority_for(JOB, Place(True, 700), 100_000, [replace(OTHER, priority=701)]) == 700


def test_without_a_front_it_gets_back_what_it_had() -> None:
    assert priority_for(JOB, Place(False, 700), 100_000, []) == 700
    assert priority_for(JOB, Place(False, 300), 100_000, []) is None
    assert priority_for(JOB, Place(False, 0), 100_000, []) is None


@given(
    own=st.integers(1, 10_000),
    now=st.integers(1, 10_000),
    others=st.lists(st.integers(1, 200_000), max_size=8),
)
def test_without_a_front_nobody_is_overtaken(own: int, now: int, others: list[int]) -> None:
    """Whoever stood above the job before its first run stands above it after."""
    view = replace(JOB, priority=now)
    line = [replace(OTHER, job_id=n, priority=each) for n, each in enumerate(others)]
    found = priority_for(view, Place(False, own), 100_000, line) or now
    assert found <= max(own, now)


@given(own=st.integers(1, 10_000), others=st.lists(st.integers(1, 200_000), max_size=8))
def test_a_front_passes_no_higher_qos(own: int, others: list[int]) -> None:
    view = replace(JOB, priority=own)
    line = [replace(OTHER, job_id=n, priority=each) for n, each in enumerate(others)]
    found = priority_for(view, Place(True, own), 100_000, line) or own
    assert not [each for each in others if own < each <= found]


def test_what_a_job_has_when_its_time_at_the_front_is_over() -> None:
    assert settled_priority(Place(True, 700)) is None  # Slurm's own figure, which grows with age
    assert (
        settled_priority(Place(True, TOP)) == TOP
    )  # priority/basic: Slurm's own would be the last
    assert priority_for(replace(JOB, priority=TOP - 9), Place(False, TOP), 100_000, []) == TOP
