# SPDX-License-Identifier: Apache-2.0
"""The interference model that measured pairs correct."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.core.place.interference import FITTED, Learned, Pair, Whose

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
