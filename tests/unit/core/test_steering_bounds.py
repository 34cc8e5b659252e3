# SPDX-License-Identifier: Apache-2.0
"""Steering under bounds on the slowdown: nobody is put where he or a neighbour bears it not."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.core.place.interference import FITTED
from slurm_coloc.core.place.steering import Act, Pin, Running, Why
from slurm_coloc.policies import registry
from tests.unit.core.test_steering import answers, device, node, places, waiting, world

ON_FIRST = Running(1, 1000, "n1", (0,), 6, start_s=0.0, smact=0.8)
BEARS = replace(ON_FIRST, max_slowdown=1.05)
FULLER = {"policy": "best-fit", "smact_gate": 1.0}
TAKEN = node("n1", device(0, used=6, smact=0.5), device(1))


def test_best_fit_takes_the_fuller_one_where_nobody_minds() -> None:
    found = world(waiting(2, smact=0.8), nodes=(TAKEN,), running=(ON_FIRST,), rules=FULLER)
    assert places(found) == ["a100-0"]


def test_a_neighbour_s_bound_and_its_own() -> None:
    for running, mine in ((BEARS, None), (ON_FIRST, 1.05)):
        job = waiting(2, smact=0.8, max_slowdown=mine)
        assert places(world(job, nodes=(TAKEN,), running=(running,), rules=FULLER)) == ["a100-1"]
    light = waiting(2, smact=0.02)
    assert places(world(light, nodes=(TAKEN,), running=(BEARS,), rules=FULLER)) == ["a100-0"]


def test_a_closed_gpu_takes_nobody() -> None:
    shut = node("n1", device(0, used=6, smact=0.5, closed=True), device(1))
    light = waiting(2, smact=0.02)
    assert places(world(light, nodes=(shut,), running=(ON_FIRST,), rules=FULLER)) == ["a100-1"]
    # A pin there is moved.
    pinned = replace(light, pin=Pin("n1", "a100-0"))
    found = answers(world(pinned, nodes=(shut,), running=(ON_FIRST,), rules=FULLER))[2]
    assert (found.act, found.why, found.pin) == (Act.PIN, Why.MOVED, Pin("n1", "a100-1"))


@pytest.mark.parametrize("closed", [True, False])
def test_where_nothing_else_is_there_it_waits_and_not_for_ever(closed: bool) -> None:
    """Left to Slurm it would start on that very GPU."""
    only = node("n1", device(0, used=6, smact=0.5, closed=closed))
    running = ON_FIRST if closed else BEARS
    job = waiting(2, smact=0.8)
    found = answers(world(job, nodes=(only,), running=(running,), rules=FULLER))[2]
    assert (found.act, found.why) == (Act.WAIT, Why.BOUND)
    long = replace(job, since_s=600.0)
    found = answers(world(long, nodes=(only,), running=(running,), rules=FULLER))[2]
    assert (found.act, found.why) == (Act.NATIVE, Why.GAVE_UP)


def test_a_busy_gpu_is_told_from_a_bound() -> None:
    only = node("n1", device(0, used=6, smact=0.9))
    found = answers(world(waiting(2), nodes=(only,), running=(ON_FIRST,)))[2]
    assert (found.act, found.why) == (Act.WAIT, Why.GATE)


def test_whole_gpus_are_nobody_s_neighbours() -> None:
    shut = node("n1", device(0, used=6, closed=True), device(1))
    alone = waiting(2, 0, ours=False, gpus=1)
    share = waiting(3, smact=0.1)
    # The share comes after a job that takes the other GPU whole: it waits for its own.
    found = answers(world(alone, share, nodes=(shut,), running=(ON_FIRST,), rules=FULLER))
    assert found[3].act is Act.WAIT


activities = st.floats(0.05, 1.0)
bounds = st.none() | st.floats(1.0, 2.0)


@given(
    st.lists(st.tuples(activities, bounds), max_size=3),
    st.lists(st.tuples(activities, bounds), min_size=1, max_size=4),
    st.sampled_from(sorted(registry())),
)
@settings(max_examples=60, deadline=None)
def test_no_bound_is_broken_by_a_pin(
    there: list[tuple[float, float | None]],
    come: list[tuple[float, float | None]],
    policy: str,
) -> None:
    running = tuple(
        Running(n, 1000, "n1", (n % 2,), 6, start_s=0.0, smact=smact, max_slowdown=bound)
        for n, (smact, bound) in enumerate(there, 1)
    )
    used = [6 * sum(one.devices == (place,) for one in running) for place in (0, 1)]
    nodes = (node("n1", device(0, used=used[0]), device(1, used=used[1])),)
    jobs = [waiting(10 + n, 6, smact=a, max_slowdown=b) for n, (a, b) in enumerate(come)]
    rules = {"policy": policy, "smact_gate": 1.0}
    found = answers(world(*jobs, nodes=nodes, running=running, rules=rules))
    for place in (0, 1):
        here = [(one.smact, one.max_slowdown) for one in running if one.devices == (place,)]
        before = len(here)
        here += [
            (job.smact, job.max_slowdown)
            for job in jobs
            if (pin := found[job.job_id].pin) and pin.kind == f"a100-{place}"
        ]
        if len(here) == before:
            continue  # whatever is broken there was broken before
        speeds = FITTED.speeds([Activity(smact or 0.0) for smact, _ in here], "mps")
        for speed, (_, bound) in zip(speeds, here, strict=True):
            assert bound is None or 1 / speed <= bound + 1e-6
