# SPDX-License-Identifier: Apache-2.0
"""Interference-aware placement."""

import pytest

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.core.place.gpu_slot import PlaceRequest
from slurm_coloc.policies.interference import POLICY, gain
from tests.unit.policies.views import put, request, slots, starts, view


def test_an_idle_gpu_gains_most() -> None:
    places = slots(2)
    put(places[0], request(1, 0.6))
    assert starts(POLICY, [request(2, 0.6)], places) == {2: [1]}


def test_a_heavy_job_goes_beside_the_lightest() -> None:
    places = slots(3)
    for slot, smact in zip(places, (0.9, 0.2, 0.6), strict=True):
        put(slot, request(10 + slot.index, smact))
    assert starts(POLICY, [request(1, 0.8)], places) == {1: [1]}


def test_gain_is_the_growth_of_throughput_under_the_reference() -> None:
    places = slots(1)
    put(places[0], request(1, 0.5))
    # Both run at 1 / (1 + 1.1 * 0.5^3).
    expected = 2 * 0.5 / (1 + 1.1 * 0.125) - 0.5
    assert gain(request(2, 0.5), places[0], view([], places)) == pytest.approx(expected)


def test_memory_heavy_goes_beside_compute_heavy() -> None:
    places = slots(2)
    for slot, drama in zip(places, (0.5, 0.1), strict=True):
        put(slot, PlaceRequest(10 + slot.index, 1, 4096, Activity(0.5, drama=drama), 0.0))
    newcomer = PlaceRequest(1, 1, 4096, Activity(0.4, drama=0.5), 0.0)
    assert starts(POLICY, [newcomer], places) == {1: [1]}


def test_conditions_hold() -> None:
    places = slots(1)
    put(places[0], request(1, 0.2, 30, user="a"))
    assert starts(POLICY, [request(2, 0.2, 10, user="a")], places) == {}
    assert starts(POLICY, [request(3, 0.2, 5, user="b")], places, share_with="user") == {}
    assert starts(POLICY, [request(4, 0.2, 5, user="a")], places, share_with="user") == {4: [0]}
