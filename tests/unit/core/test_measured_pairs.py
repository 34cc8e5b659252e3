# SPDX-License-Identifier: Apache-2.0
"""The interference model that measured pairs correct."""

from dataclasses import replace
from math import exp, log
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.core.place.interference import FITTED, Learned, Pair, Whose, pairs_on
from slurm_coloc.core.records.pairs import PairSpeed

A, B, C = (
    Activity(smact, fingerprint=f"1000:{name}")
    for smact, name in ((0.5, "a"), (0.6, "b"), (0.3, "c"))
)
NONE = Activity(0.5)


def model(speed: float, runs: float = 1.0, *, owner: str = "1000", method: str = "mps") -> Learned:
    """One pair was measured: a beside b."""
    return Learned({(f"{owner}:a", "b", method): Pair(speed, runs)})


def test_without_measurements_it_is_the_prior() -> None:
    assert Learned().speeds([A, B, C]) == FITTED.speeds([A, B, C])
    assert model(0.3).speeds([NONE, B]) == FITTED.speeds([NONE, B])


def test_the_more_runs_the_more_they_count() -> None:
    prior, neighbour = FITTED.speeds([A, B])
    one, many = (model(0.3, runs).speeds([A, B]) for runs in (1.0, 20.0))
    assert 0.3 < many[0] < one[0] < prior
    assert many[0] == pytest.approx(0.3, abs=0.02)
    assert one[1] == many[1] == neighbour, "only who was measured"


@pytest.mark.parametrize("whose", [{"owner": "1001"}, {"method": "streams"}])
def test_whose_it_is(whose: dict[str, Any]) -> None:
    """A log of one user moves nobody else's job; in turns on the GPU it is another speed."""
    assert model(0.3, **whose).speeds([A, B]) == FITTED.speeds([A, B])


def test_another_user_s_neighbour_is_known_too() -> None:
    theirs = Activity(B.smact, fingerprint="1001:b")
    assert model(0.3).speeds([A, theirs])[0] == model(0.3).speeds([A, B])[0]


def test_in_a_group_each_pair_counts() -> None:
    prior = FITTED.speeds([A, B, C])
    slower, faster = (model(speed, 20.0).speeds([A, B, C]) for speed in (0.3, 1.0))
    assert slower[0] < prior[0] < faster[0]
    assert slower[1:] == faster[1:] == prior[1:]


ROW = PairSpeed(
    uid=1000,
    training="a",
    beside="b",
    card="A100",
    method="mps",
    runs=3.0,
    log_speed=log(0.5),
    at_s=0.0,
)


def test_on_its_own_card_a_run_is_a_run() -> None:
    assert pairs_on("A100", [ROW]) == {("1000:a", "b", "mps"): Pair(pytest.approx(0.5), 3.0)}


@pytest.mark.parametrize("card", ["T4", ""])
def test_another_card_s_runs_say_less_than_one(card: str) -> None:
    for runs in (1.0, 20.0, 1e9):
        (pair,) = pairs_on(card, [replace(ROW, runs=runs)]).values()
        assert pair.speed == pytest.approx(0.5)
        assert 0.2 <= pair.runs <= 0.25
    prior, there = FITTED.speeds([A, B])[0], Learned(pairs_on(card, [ROW])).speeds([A, B])[0]
    here = Learned(pairs_on("A100", [ROW])).speeds([A, B])[0]
    assert here < there < prior
    assert prior - there < 0.5 * (prior - here)


def test_both_cards_count_by_what_they_say() -> None:
    (pair,) = pairs_on("T4", [ROW, replace(ROW, card="T4", log_speed=log(0.9))]).values()
    foreign = 1.0 / (4.0 + 1.0 / 3.0)
    assert pair.runs == pytest.approx(3.0 + foreign)
    assert pair.speed == pytest.approx(exp((3 * log(0.9) + foreign * log(0.5)) / pair.runs))


RATIOS = st.floats(0.01, 1.0)
PAIRS = st.dictionaries(
    st.tuples(st.sampled_from("abcd"), st.sampled_from("abcd")),
    st.builds(Pair, st.floats(0.05, 1.0), st.floats(1.0, 20.0)),
)


@given(PAIRS, st.lists(st.tuples(RATIOS, st.sampled_from("abcd")), min_size=1, max_size=5))
def test_speeds_are_speeds(
    pairs: dict[tuple[str, str], Pair], jobs: list[tuple[float, str]]
) -> None:
    known: dict[Whose, Pair] = {
        (f"1:{one}", other, "mps"): pair for (one, other), pair in pairs.items()
    }
    there = [Activity(smact, fingerprint=f"1:{name}") for smact, name in jobs]
    learned = Learned(known)
    found = learned.speeds(there)
    assert all(0.0 < speed <= 1.0 for speed in found)
    for place, job in enumerate(there):
        for other in (*there[:place], *there[place + 1 :]):
            if (job.fingerprint, other.fingerprint[2:], "mps") in known:
                assert found[place] <= learned.speeds([job, other])[0] + 1e-9
