# SPDX-License-Identifier: Apache-2.0
"""Interference-aware placement."""

import pytest

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.core.place.placing import PlaceRequest
from slurm_coloc.policies.interference import POLICY, gain
from tests.unit.policies.views import ask, put, seats, starts, view


def test_an_idle_gpu_gains_most() -> None:
    places = seats(2)
    put(places[0], ask(1, 0.6))
    assert starts(POLICY, [ask(2, 0.6)], places) == {2: [1]}


def test_a_heavy_job_goes_beside_the_lightest() -> None:
    places = seats(3)
    for seat, smact in zip(places, (0.9, 0.2, 0.6), strict=True):
        put(seat, ask(10 + seat.index, smact))
    assert starts(POLICY, [ask(1, 0.8)], places) == {1: [1]}


def test_gain_is_the_growth_of_throughput_under_the_reference() -> None:
    places = seats(1)
    put(places[0], ask(1, 0.5))
    # Both run at 1 / (1 + 1.1 * 0.5^3).
    expected = 2 * 0.5 / (1 + 1.1 * 0.125) - 0.5
    assert gain(ask(2, 0.5), places[0], view([], places)) == pytest.approx(expected)


def test_memory_heavy_goes_beside_compute_heavy() -> None:
    places = seats(2)
    for seat, drama in zip(places, (0.5, 0.1), strict=True):
        put(seat, PlaceRequest(10 + seat.index, 1, 4096, Activity(0.5, drama=drama), 0.0))
    newcomer = PlaceRequest(1, 1, 4096, Activity(0.4, drama=0.5), 0.0)
    assert starts(POLICY, [newcomer], places) == {1: [1]}


def test_conditions_hold() -> None:
    places = seats(1)
    put(places[0], ask(1, 0.2, 30, user="a"))
    assert starts(POLICY, [ask(2, 0.2, 10, user="a")], places) == {}
    assert starts(POLICY, [ask(3, 0.2, 5, user="b")], places, share_with="user") == {}
    assert starts(POLICY, [ask(4, 0.2, 5, user="a")], places, share_with="user") == {4: [0]}
