# SPDX-License-Identifier: Apache-2.0
"""Watts from activity."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_coloc.core.gpu.cards import GPU_TYPES
from slurm_coloc.core.place.activity import Activity
from slurm_coloc.errors import UsageFault
from slurm_coloc.sim.power import A100, POWERS, PROFILES, TDP_W, Power, dram_activity, power

curves = pytest.mark.parametrize("curve", POWERS.values(), ids=list(POWERS))


def test_by_name() -> None:
    assert power("profiles") is PROFILES
    assert power("thesis") is A100
    with pytest.raises(UsageFault, match="wind: one of thesis, profiles"):
        power("wind")


@curves
@given(s=st.floats(0.0, 1.05), more=st.floats(0.0, 0.5), d=st.floats(0.0, 1.0))
def test_more_activity_never_draws_less(curve: Power, s: float, more: float, d: float) -> None:
    assert curve.idle_w <= curve.watts(s, d) <= curve.watts(s + more, d + more) <= curve.limit_w


@curves
def test_idle_and_limit(curve: Power) -> None:
    assert curve.watts(0.0) == 53.0
    assert curve.watts(1e-6, 0.0) == 53.0
    assert curve.watts(1.5, 1.0) == curve.limit_w


def test_solo_profiles() -> None:
    """Two of the twelve published ones: EfficientNet on ImageNet at 128 and BERT large."""
    assert PROFILES.watts(0.6096, 0.3481) == pytest.approx(204, abs=6)
    assert PROFILES.watts(0.9208, 0.1555) == pytest.approx(261, abs=6)


def test_dram_activity_counts_where_it_is_known() -> None:
    assert PROFILES.watts(0.7, 0.5) - PROFILES.watts(0.7, 0.2) == pytest.approx(0.3 * 108.3)
    assert dram_activity(Activity(0.5, drama=0.1)) == 0.1
    assert PROFILES.watts(0.5) == PROFILES.watts(0.5, dram_activity(Activity(0.5)))


def test_other_gpus_follow_board_power() -> None:
    h100 = PROFILES.on("h100-80gb")
    assert h100.watts(0.5, 0.2) == pytest.approx(PROFILES.watts(0.5, 0.2) * 700 / 400)
    assert h100.watts(2.0) == 700
    assert PROFILES.on("h200-141gb:mig").idle_w == pytest.approx(53 * 1.75)
    assert PROFILES.on("a100-80gb") is PROFILES


def test_every_known_gpu_has_its_board_power() -> None:
    assert set(TDP_W) == set(GPU_TYPES)
