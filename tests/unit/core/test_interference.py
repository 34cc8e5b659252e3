# SPDX-License-Identifier: Apache-2.0
"""How fast jobs run beside each other: each model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.core.place.interference import (
    FITTED,
    MODELS,
    PRODUCT,
    REFERENCE,
    Interference,
    model,
)
from slurm_coloc.errors import UsageFault

ratio = st.floats(0.0, 1.0)
maybe = st.none() | ratio
activity = st.builds(
    Activity, smact=ratio, drama=maybe, gract=maybe, sensitivity=st.floats(0.0, 1.0)
)
crowd = st.lists(activity, min_size=2, max_size=7)
models = pytest.mark.parametrize("each", MODELS.values(), ids=list(MODELS))
SMALL = Activity(0.18, drama=0.06)
HEAVY = Activity(0.82, drama=0.42)


def slowdowns(each: Interference, *smacts: float) -> list[float]:
    return [1 / speed for speed in each.speeds([Activity(smact) for smact in smacts])]


def test_by_name() -> None:
    assert model("reference") is REFERENCE
    assert model("fitted") is FITTED
    assert model("product") is PRODUCT
    with pytest.raises(UsageFault, match="guess: one of reference, fitted"):
        model("guess")


@models
@given(jobs=crowd)
def test_bounds(each: Interference, jobs: list[Activity]) -> None:
    """Nobody stands still or gains, and a GPU does not do more than it can."""
    for method in ("mps", "streams"):
        speeds = each.speeds(jobs, method)
        assert len(speeds) == len(jobs)
        assert all(0 < speed <= 1 for speed in speeds)
    used = sum(job.smact * v for job, v in zip(jobs, each.speeds(jobs), strict=True))
    assert used <= 1.05 + 1e-9


@models
@given(job=activity, fraction=st.floats(0.05, 1.0))
def test_slice_bounds(each: Interference, job: Activity, fraction: float) -> None:
    assert 0 < each.slice_speed(job, fraction) <= 1
    assert each.slice_speed(job, 1.0) == 1.0


@given(jobs=crowd, newcomer=activity)
def test_fitted_neighbours_never_help(jobs: list[Activity], newcomer: Activity) -> None:
    for method in ("mps", "streams"):
        before = FITTED.speeds(jobs, method)
        after = FITTED.speeds([*jobs, newcomer], method)
        assert all(new <= old + 1e-9 for new, old in zip(after, before, strict=False))


@models
@given(jobs=crowd)
def test_order_does_not_matter(each: Interference, jobs: list[Activity]) -> None:
    assert each.speeds(jobs[::-1])[::-1] == pytest.approx(each.speeds(jobs))


@models
def test_alone_is_full_speed(each: Interference) -> None:
    for method in ("mps", "streams"):
        assert each.speeds([], method) == []
        assert each.speeds([Activity(1.0)], method) == [1.0]


def test_reference_by_hand() -> None:
    """1 / (1 + 1.1 S^3), then all by 1.05 over the sum of s v."""
    assert REFERENCE.speeds([Activity(0.2), Activity(0.5)]) == pytest.approx(
        [1 / (1 + 1.1 * 0.125), 1 / (1 + 1.1 * 0.008)]
    )
    both = [1 / (1 + 1.1 * 0.5**3), 1 / (1 + 1.1 * 0.9**3)]
    assert REFERENCE.speeds([Activity(0.9), Activity(0.5)]) == pytest.approx(
        [v * 1.05 / (0.9 * both[0] + 0.5 * both[1]) for v in both]
    )
    assert REFERENCE.speeds([Activity(0.9)] * 3) == pytest.approx([1.05 / 2.7] * 3)


def test_reference_against_its_published_checks() -> None:
    """The statements that the model was compared with when it was made."""
    for smact in (0.2, 0.3):
        assert slowdowns(REFERENCE, *[smact] * 7) == pytest.approx([2.1] * 7, rel=0.01)
    assert slowdowns(REFERENCE, *[0.4] * 3)[0] == pytest.approx(1.56, abs=0.01)
    assert slowdowns(REFERENCE, *[0.5] * 3)[0] == pytest.approx(2.1, abs=0.01)
    assert slowdowns(REFERENCE, 0.5, 0.5)[0] <= 1.14
    assert slowdowns(REFERENCE, 0.9, 0.9)[0] == pytest.approx(1.8, abs=0.01)
    dlrm, resnet = REFERENCE.speeds([Activity(0.05), Activity(0.82)])
    assert resnet == pytest.approx(1.0, abs=0.005)
    assert 1 / dlrm == pytest.approx(1.6, abs=0.01)


@models
def test_streams_take_turns(each: Interference) -> None:
    """Time slices by graphics engine activity; within it nobody waits."""
    large = Activity(0.8, gract=0.95)
    assert each.speeds([large, large], "streams") == pytest.approx([1 / 1.9] * 2)
    dlrm = Activity(0.05, gract=0.13)
    assert each.speeds([dlrm, large], "streams") == pytest.approx([1 / 1.08] * 2)
    assert each.speeds([dlrm, dlrm], "streams") == [1.0, 1.0]
    assert each.speeds([Activity(0.0), Activity(0.0)], "streams") == [1.0, 1.0]


@pytest.mark.parametrize(("smact", "engine"), [(0.2, 0.4), (0.7, 0.84), (0.9, 1.0)])
def test_engine_activity_where_only_sm_activity_is_known(smact: float, engine: float) -> None:
    assert Activity(smact).engine == pytest.approx(engine)
    assert Activity(smact, gract=0.3).engine == 0.3


def test_product_of_utilizations() -> None:
    """0.39 u u' as it was published, an SM activity being 0.8 u."""
    for one, other in ((0.5, 0.9), (0.2, 0.9), (0.3, 0.1)):
        speeds = PRODUCT.speeds([Activity(0.8 * one), Activity(0.8 * other)])
        assert speeds == pytest.approx([1 / (1 + 0.39 * one * other)] * 2)
    light = REFERENCE.speeds([SMALL, HEAVY])[0]
    assert light < PRODUCT.speeds([SMALL, HEAVY])[0] < 1.0, "a light job keeps its speed"
    assert 2 * PRODUCT.speeds([HEAVY, HEAVY])[0] * HEAVY.smact <= PRODUCT.capacity


@models
def test_mig_gives_a_share_of_the_sms(each: Interference) -> None:
    assert 1 / each.slice_speed(Activity(0.26), 14 / 108) == pytest.approx(2.0, abs=0.01)
    assert 1 / each.slice_speed(Activity(0.32), 14 / 108) == pytest.approx(2.5, abs=0.05)
    assert each.slice_speed(Activity(0.1), 14 / 108) == 1.0
    assert each.slice_speed(Activity(0.0), 14 / 108) == 1.0


def test_fitted_heavy_keeps_its_speed_and_light_pays() -> None:
    """42 measured pairs: the heavy one keeps 0.956 in the mean, the light one 0.777."""
    light, heavy = FITTED.speeds([SMALL, HEAVY])
    assert 0.36 < light < 0.6
    assert heavy > 0.93
    assert FITTED.speeds([SMALL, SMALL])[0] > 0.97


def test_fitted_memory_bound_neighbours_block_more() -> None:
    mild, memory_bound = Activity(0.7, drama=0.2), Activity(0.7, drama=0.5)
    assert FITTED.speeds([SMALL, memory_bound])[0] < FITTED.speeds([SMALL, mild])[0]


def test_fitted_without_dram_activity_lies_between() -> None:
    low, high = (FITTED.speeds([SMALL, Activity(0.7, drama=d)])[0] for d in (0.2, 0.5))
    assert high < FITTED.speeds([Activity(0.18), Activity(0.7)])[0] < low


def test_fitted_host_bound_jobs_lose_less() -> None:
    """By GRACT where it is known, by the job's own sensitivity where that is."""
    busy, host_bound = Activity(0.12, gract=0.36), Activity(0.12, gract=0.13)
    told = Activity(0.12, gract=0.36, sensitivity=0.2)
    losses = [1 / FITTED.speeds([job, HEAVY])[0] - 1 for job in (busy, host_bound, told)]
    assert losses[1] == pytest.approx(losses[0] * 0.13 / 0.36)
    assert losses[2] == pytest.approx(losses[0] * 0.2)


@pytest.mark.parametrize("jobs", [3, 4, 6, 8])
def test_fitted_many_heavy_jobs_share_what_there_is(jobs: int) -> None:
    """No total beyond the GPU, and none far below what measured pairs reach (0.87 and more)."""
    speeds = FITTED.speeds([HEAVY] * jobs)
    assert 0.8 < sum(speeds) * HEAVY.smact <= 1.05 + 1e-9
    many = FITTED.speeds([SMALL] * jobs)
    assert many[0] >= FITTED.speeds([SMALL] * (jobs + 1))[0]


def test_fitted_bounds_a_crowd_beyond_what_it_searches() -> None:
    speeds = FITTED.speeds([Activity(0.5)] * 12)
    assert sum(speeds) * 0.5 <= 1.05
    assert speeds[0] < FITTED.speeds([Activity(0.5)] * 8)[0]
