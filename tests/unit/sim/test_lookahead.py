# SPDX-License-Identifier: Apache-2.0
"""Planning ahead."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_coloc.core.place.interference import REFERENCE
from slurm_coloc.planning.combos import Combos
from slurm_coloc.planning.rollout import Rollout, Style
from slurm_coloc.planning.snapshot import snapshot_of
from slurm_coloc.sim.search.lookahead import Lookahead
from tests.unit.policies.views import put, request, slots, starts, view

JOBS = st.lists(
    st.tuples(st.integers(1, 2), st.integers(1, 39), st.floats(0.05, 1.0), st.floats(10.0, 9000.0)),
    min_size=1,
    max_size=9,
)


def test_a_rollout_ends_when_the_model_says() -> None:
    places = slots(1)
    queue = [request(1, 0.5, run_s=1000.0), request(2, 0.5, run_s=1000.0)]
    scene = snapshot_of(view(queue, places), queue, Combos(REFERENCE))
    played = Rollout(scene, [0, 1], Style()).play()
    assert played.end_s == pytest.approx(1000.0 * (1 + 1.1 * 0.125))
    assert played.first == [(0, (0,)), (1, (0,))]


def test_what_runs_is_counted_from_now() -> None:
    places = slots(1)
    put(places[0], request(1, 0.5, run_s=1000.0), ends_s=400.0)
    scene = snapshot_of(view([], places), [], Combos(REFERENCE))
    assert Rollout(scene, [], Style()).play().end_s == pytest.approx(400.0)


@pytest.mark.parametrize(("hold", "started"), [(0, [1, 2]), (1, [])])
def test_a_plan_can_keep_room_for_a_wide_job(hold: int, started: list[int]) -> None:
    """Two GPUs hold jobs that end soon; small ones wait that would keep them busy longer."""
    places = slots(2)
    for slot in places:
        put(slot, request(10 + slot.index, 0.9, 30, run_s=600.0), ends_s=600.0)
    queue = [request(1, 0.9, 38, gpus=2, run_s=9000.0)]
    queue += [request(number, 0.4, 9, run_s=3000.0) for number in (2, 3)]
    scene = snapshot_of(view(queue, places), queue, Combos(REFERENCE))
    played = Rollout(scene, [0, 1, 2], Style(hold=hold)).play()
    assert [job for job, _ in played.first] == started


def test_a_long_job_starts_before_short_ones() -> None:
    queue = [request(number, 0.9, 30, run_s=100.0) for number in range(1, 7)]
    queue.append(request(7, 0.9, 30, run_s=3000.0))
    assert 7 in starts(Lookahead(), queue, slots(2))


def test_forgetting_is_harmless() -> None:
    queue = [request(number, 0.3 + number / 20, 8 + number) for number in range(1, 9)]
    used = Lookahead()
    starts(used, queue, slots(3))
    assert starts(used.fresh(), queue, slots(2)) == starts(Lookahead(), queue, slots(2))


def test_a_large_cluster_is_placed_greedily() -> None:
    queue = [request(number, 0.5) for number in range(1, 41)]
    assert len(starts(Lookahead(), queue, slots(40))) == 40


@settings(max_examples=40, deadline=None)
@given(JOBS)
def test_plans_keep_to_memory_and_lose_nothing(jobs: list[tuple[int, int, float, float]]) -> None:
    queue = [
        request(number, smact, need, gpus=gpus, run_s=run_s)
        for number, (gpus, need, smact, run_s) in enumerate(jobs)
    ]
    places = slots(2)
    begun = starts(Lookahead(tries=4), queue, places)
    assert begun  # idle GPUs and a job that fits: something starts
    for slot in places:
        assert slot.reserved_mib <= slot.usable_mib
    for job in queue:
        assert len(set(begun.get(job.id, range(job.gpus)))) == job.gpus
