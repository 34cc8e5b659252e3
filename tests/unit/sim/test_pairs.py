# SPDX-License-Identifier: Apache-2.0
"""What pairs teach a model of interference."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.core.place.interference import FITTED
from slurm_coloc.sim.search.pairs import MOST, Learned, Pairs, in_overlap

VGG = Activity(0.82, drama=0.42, fingerprint="vgg")
CIFAR = Activity(0.18, drama=0.06, fingerprint="cifar")
UNET = Activity(0.64, drama=0.37, fingerprint="unet")
ALL = (VGG, CIFAR, UNET)


def slowdown(model: Learned, *jobs: Activity) -> float:
    return 1 / model.speeds(jobs)[0]


def test_nothing_learned_changes_nothing() -> None:
    model = Learned(FITTED, Pairs())
    assert model.speeds(ALL) == FITTED.speeds(ALL)
    assert model.speeds([VGG]) == [1.0]
    assert model.name == "fitted+pairs"
    assert model.slice_speed(VGG, 0.5) == FITTED.slice_speed(VGG, 0.5)


@pytest.mark.parametrize("true", [1.0, 1.3, 4.0])
def test_more_observations_come_nearer(true: float) -> None:
    """From the model's figure to the truth, never past it, and only for who was seen."""
    pairs = Pairs()
    model = Learned(FITTED, pairs)
    said = slowdown(model, CIFAR, VGG)
    errors = [abs(said - true)]
    for _ in range(30):
        pairs.observe("cifar", "vgg", true, said)
        errors.append(abs(slowdown(model, CIFAR, VGG) - true))
    assert all(after < before for before, after in pairwise(errors))
    assert errors[2] > 0.3 * errors[0]
    assert errors[-1] < 0.2 * errors[0]
    assert model.speeds([CIFAR, VGG])[1] == FITTED.speeds([CIFAR, VGG])[1]
    assert model.speeds([CIFAR, UNET]) == FITTED.speeds([CIFAR, UNET])
    assert model.speeds([CIFAR, VGG], "streams") == FITTED.speeds([CIFAR, VGG], "streams")


def test_one_odd_run_is_bounded() -> None:
    pairs = Pairs(prior=0.0)
    pairs.observe("a", "b", 1000.0, 1.5)
    assert pairs.loss("a", "b", 0.5) == pytest.approx(0.55 * MOST - 0.05)


def test_slowdown_in_the_overlap() -> None:
    """100 s alone took 150 s, 100 s of it beside the other: 50 s of work in 100 s."""
    found = in_overlap(100.0, 150.0, 100.0)
    assert found is not None
    assert found == pytest.approx((2.0, 1.0))
    brief = in_overlap(1000.0, 1010.0, 20.0)
    assert brief is not None
    assert brief[0] == pytest.approx(2.0)
    assert brief[1] < 0.01


@pytest.mark.parametrize(
    "times",
    [
        (100.0, 150.0, 0.0),  # no overlap
        (100.0, 90.0, 95.0),  # longer beside the other than at all
        (100.0, 250.0, 100.0),  # slower than alone without the other, too: not its doing
        (0.0, 10.0, 10.0),
    ],
)
def test_no_slowdown_to_learn(times: tuple[float, float, float]) -> None:
    assert in_overlap(*times) is None


def test_half_an_overlap_counts_half() -> None:
    once, halves = Pairs(), Pairs()
    once.observe("a", "b", 2.0, 1.5)
    for _ in range(2):
        halves.observe("a", "b", 2.0, 1.5, weight=0.5)
    assert once.loss("a", "b", 0.5) == pytest.approx(halves.loss("a", "b", 0.5))


@pytest.mark.parametrize(
    "given_", [("", "b", 2.0, 1.5), ("a", "", 2.0, 1.5), ("a", "b", math.nan, 1.5)]
)
def test_what_teaches_nothing(given_: tuple[str, str, float, float]) -> None:
    pairs = Pairs()
    pairs.observe(*given_)
    pairs.observe("a", "b", 2.0, 1.5, weight=0.0)
    assert pairs.rows() == []


def test_kept_and_read_again() -> None:
    pairs = Pairs()
    pairs.observe("a", "b", 2.0, 1.5)
    pairs.observe("b", "a", 1.0, 1.5, "streams")
    assert Pairs.of(pairs.rows()) == pairs


def test_three_jobs() -> None:
    """Worse than the model beside one: added. Better: only if better beside all."""
    worse, better, both = Pairs(), Pairs(), Pairs()
    said = 1 / FITTED.speeds([CIFAR, VGG])[0]
    for _ in range(5):
        worse.observe("cifar", "vgg", 4.0, said)
        better.observe("cifar", "vgg", 1.0, said)
        both.observe("cifar", "vgg", 1.0, said)
        both.observe("cifar", "unet", 1.0, 1 / FITTED.speeds([CIFAR, UNET])[0])
    jobs = (CIFAR, VGG, UNET)
    plain = FITTED.speeds(jobs)[0]
    assert Learned(FITTED, worse).speeds(jobs)[0] < plain
    assert Learned(FITTED, better).speeds(jobs)[0] == pytest.approx(plain)
    assert Learned(FITTED, both).speeds(jobs)[0] > plain


names = st.sampled_from(["vgg", "cifar", "unet", ""])
known = st.lists(st.tuples(names, names, st.floats(0.5, 9.0), st.floats(1.0, 9.0)), max_size=8)
jobs_of = st.lists(
    st.builds(
        lambda job, name: replace(job, fingerprint=name),
        st.builds(Activity, smact=st.floats(0.0, 1.0), drama=st.floats(0.0, 0.6)),
        names,
    ),
    min_size=2,
    max_size=5,
)


@given(known=known, jobs=jobs_of)
def test_bounds_and_neighbours_never_help(
    known: list[tuple[str, str, float, float]], jobs: list[Activity]
) -> None:
    pairs = Pairs()
    for one in known:
        pairs.observe(*one)
    model = Learned(FITTED, pairs)
    before, after = model.speeds(jobs[:-1]), model.speeds(jobs)
    assert all(0 < speed <= 1 for speed in after)
    assert all(new <= old + 1e-9 for new, old in zip(after, before, strict=False))
