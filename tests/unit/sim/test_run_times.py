# SPDX-License-Identifier: Apache-2.0
"""Run times guessed from jobs that are a little like the one that is asked for."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slurm_coloc.sim.search.run_times import PRIOR_S, Guess, Training

WORDS = st.sampled_from(["vgg16", "resnet50", "bert", "imagenet", "cifar", "wiki", "bs32", "bs128"])
TRAININGS = st.builds(
    Training,
    st.lists(WORDS, max_size=4).map("|".join),
    st.integers(1, 4),
    st.floats(0.0, 1.0),
    st.sampled_from([None, 60.0, 7200.0]),
)


def test_nothing_known_is_the_prior_and_says_so() -> None:
    found = Guess([]).expect(Training("a", 1, 0.5))
    assert found.run_s == PRIOR_S and found.spread > 1.0


def test_its_own_runs_count_most() -> None:
    one, other = Training("vgg16|imagenet", 1, 0.8), Training("vgg16|cifar", 1, 0.8)
    guess = Guess([(one, [1000.0, 1100.0, 900.0]), (other, [100.0])])
    assert guess.expect(one).run_s == pytest.approx(1000.0, rel=0.15)
    assert guess.expect(one).spread < guess.expect(Training("bert|wiki", 2, 0.9)).spread


def test_words_that_are_shared_count() -> None:
    long, short = Training("vgg16|imagenet|bs32", 1, 0.8), Training("resnet18|cifar|bs128", 1, 0.3)
    guess = Guess([(long, [3000.0]), (short, [100.0])])
    like_long = guess.expect(Training("vgg16|imagenet|bs64", 1, 0.8))
    like_short = guess.expect(Training("resnet34|cifar|bs128", 1, 0.3))
    assert like_long.run_s > 3.0 * like_short.run_s


def test_a_run_that_goes_on_raises_what_is_expected_of_those_like_it() -> None:
    known = [(Training("mnist", 1, 0.1), [120.0])]
    going = Training("vgg16|imagenet", 1, 0.8)
    like = Training("vgg16|imagenet|bs64", 1, 0.8)
    before = Guess(known).expect(like).run_s
    assert Guess(known, [(going, 9000.0)]).expect(like).run_s > before
    assert Guess(known, [(going, 2.0)]).expect(like).run_s == pytest.approx(before, rel=0.1)


def test_limits_are_too_long_by_what_they_were_before() -> None:
    """Users ask for twice what they need; one who has no limit tells nothing of that."""
    ended = [(Training(f"t{n}", 1, 0.5, 2000.0 * n), [1000.0 * n]) for n in range(1, 6)]
    found = Guess(ended).expect(Training("new", 1, 0.5, 7000.0))
    assert found.run_s == pytest.approx(3500.0, rel=0.2)
    assert Guess([]).expect(Training("new", 1, 0.5, 7000.0)).run_s == 7000.0


@given(
    st.lists(st.tuples(TRAININGS, st.lists(st.floats(0.0, 1e6), min_size=1, max_size=3))),
    st.lists(st.tuples(TRAININGS, st.floats(0.0, 1e6)), max_size=4),
    TRAININGS,
    st.floats(0.0, 1e6),
)
@example([], [], Training("", 1, 0.0, None), 5e-324)
def test_a_guess_is_a_time_and_not_less_than_what_has_passed(
    ended: list[tuple[Training, list[float]]],
    going: list[tuple[Training, float]],
    job: Training,
    done_s: float,
) -> None:
    found = Guess(ended, going).expect(job, done_s)
    assert math.isfinite(found.run_s) and found.spread > 0.0
    assert found.run_s > 0.98 * done_s
