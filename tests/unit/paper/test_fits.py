# SPDX-License-Identifier: Apache-2.0
"""The constants of the models are those that the fits give, and the fits do what they say."""

import math
from pathlib import Path

import pytest

from estimator.interference import fit as interference
from estimator.interference.leastsquares import minimise
from estimator.interference.measured import Pair, families, itself, read_pairs, read_profiles
from estimator.power import fit as power
from slurm_coloc.core.place.activity import Activity
from slurm_coloc.core.place.interference import FITTED, REFERENCE
from slurm_coloc.sim.power import DRAM_PER_SM, PROFILES, THESIS
from tests.paper.facts import folder

CANDIDATES = {one.name: one for one in interference.CANDIDATES}


@pytest.fixture(scope="module")
def facts() -> Path:
    found = folder()
    if found is None:
        pytest.skip("the facts are not here (COLOC_FACTS)")
    return found


@pytest.fixture(scope="module")
def pairs(facts: Path) -> list[Pair]:
    profiles = read_profiles(facts / "outside_solo_profiles.csv")
    return read_pairs(facts / "outside_pair_slowdowns.csv", profiles)[0]


def test_least_squares_finds_known_constants() -> None:
    points = [(x / 10, 3.0 * math.exp(-0.7 * x / 10)) for x in range(30)]
    found = minimise(lambda p: [p[0] * math.exp(p[1] * x) - y for x, y in points], (1.0, 0.0))
    assert found == pytest.approx([3.0, -0.7], rel=1e-4)


def test_left_out_pairs_are_not_trained_on() -> None:
    """A pair's own error shows up only if it was really left out."""
    alike = [
        Pair((f"{name}_x", "b_x"), (Activity(0.5), Activity(0.5)), (v, v), (0.05, 0.05))
        for name, v in (("a", 0.8), ("c", 0.8), ("d", 0.2))
    ]
    constant = CANDIDATES["constant"]
    seen = interference.on_all(constant, alike, interference.fit(constant, alike))
    left = interference.left_out(constant, alike, itself)
    assert seen.rmse == pytest.approx(math.sqrt((0.04 + 0.04 + 0.16) / 3), rel=1e-3)
    assert left.rmse == pytest.approx(math.sqrt((0.09 + 0.09 + 0.36) / 3), rel=1e-3)


def test_constants_of_the_fitted_model(pairs: list[Pair]) -> None:
    assert len(pairs) == 72
    found = interference.fit(CANDIDATES["fitted"], pairs)
    kept = [FITTED.overlap, FITTED.blocking, FITTED.steep, FITTED.dram]
    assert kept == pytest.approx(found, rel=0.01)
    strongest = max(FITTED.pressure(job) for pair in pairs for job in pair.jobs)
    assert FITTED.strongest == pytest.approx(strongest, abs=0.001)


def test_reference_error_is_the_published_one(pairs: list[Pair]) -> None:
    as_it_stands = CANDIDATES["reference as it stands"]
    assert (REFERENCE.k, REFERENCE.capacity) == (1.1, 1.05)
    assert interference.on_all(as_it_stands, pairs, []).rmse == pytest.approx(0.107, abs=0.0006)


def test_fitted_beats_the_reference_on_families_it_never_saw(pairs: list[Pair]) -> None:
    fitted = interference.left_out(CANDIDATES["fitted"], pairs, families)
    reference = interference.on_all(CANDIDATES["reference as it stands"], pairs, [])
    assert fitted.rmse < 0.85 * reference.rmse


def test_pairs_of_a_training_that_nothing_was_fitted_to(facts: Path) -> None:
    profiles = read_profiles(facts / "outside_solo_profiles.csv")
    standing = interference.Candidate("fitted", lambda p, jobs: FITTED.speeds(jobs))
    path, llama = facts / "outside_pair_slowdowns.csv", "llama3_width_8layer_wiki_bs1"
    smact, errors = interference.unprofiled(standing, path, profiles, llama)
    assert errors.count == 18
    assert 0.5 < smact < 0.8
    assert errors.rmse < 0.085


def test_power_of_solo_profiles(facts: Path) -> None:
    profiles = power.read_profiles(facts / "outside_solo_profiles.csv")
    assert len(profiles) == 12
    found = power.fit_profiles(profiles)
    assert [PROFILES.base_w, PROFILES.smact_w, PROFILES.dram_w] == pytest.approx(found, rel=0.002)
    assert power.on_profiles(PROFILES, profiles) < 9.2
    assert power.on_profiles(THESIS, profiles) < 12


def test_dram_activity_where_it_is_not_known(facts: Path) -> None:
    jobs = read_profiles(facts / "outside_solo_profiles.csv").values()
    both = sum((job.drama or 0.0) * job.smact for job in jobs)
    usual = both / sum(job.smact**2 for job in jobs)
    assert usual == pytest.approx(DRAM_PER_SM, abs=0.005)


def test_energy_totals_of_the_thesis(facts: Path) -> None:
    """Exclusive within 2 % and MAGM's saving within 2 points of Table 6.6, in one run each."""
    published = power.read_published(facts / "expected.csv")
    spent = power.all_hours(facts, REFERENCE, runs=1)
    totals = [power.megajoules(THESIS, one) for one in spent]
    assert totals[0] == pytest.approx(published["T6.6-1"], rel=0.02)
    saved = 1 - totals[3] / totals[0]
    assert saved == pytest.approx(1 - published["T6.6-4"] / published["T6.6-1"], abs=0.02)
