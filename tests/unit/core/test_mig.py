# SPDX-License-Identifier: Apache-2.0
"""MIG: profiles, their places on a GPU, and what a device's name says."""

import pytest

from slurm_coloc.core.gpu.mig import (
    CARDS,
    card,
    kind_of,
    layouts,
    place,
    slice_mib,
    slice_of,
)
from slurm_coloc.errors import UsageFault

A100 = CARDS["a100-40gb"]


@pytest.mark.parametrize(
    ("name", "mib", "sms", "most"),
    [("1g.5gb", 4864, 14, 7), ("2g.10gb", 9984, 28, 3), ("3g.20gb", 20096, 42, 2)],
)
def test_profiles_of_an_a100(name: str, mib: int, sms: int, most: int) -> None:
    found = A100.profile(name)
    assert found is not None
    assert (found.mib, found.sms, len(found.starts)) == (mib, sms, most)


def test_every_profile_fits_its_card_as_often_as_it_says() -> None:
    for one in CARDS.values():
        for profile in one.profiles:
            assert place(one, [profile.name] * len(profile.starts)) is not None
            assert place(one, [profile.name] * (len(profile.starts) + 1)) is None


def test_places_do_not_meet() -> None:
    assert place(A100, ["1g.5gb", "3g.20gb", "1g.5gb", "2g.10gb"]) == (
        ("2g.10gb", 0),
        ("1g.5gb", 2),
        ("1g.5gb", 3),
        ("3g.20gb", 4),
    )
    # seven compute slices, and four of eight memory slices each
    assert place(A100, ["3g.20gb", "4g.20gb"]) == (("4g.20gb", 0), ("3g.20gb", 4))
    assert place(A100, ["4g.20gb", "4g.20gb"]) is None
    assert place(A100, ["3g.20gb", "3g.20gb", "1g.5gb"]) is None


def test_an_unknown_profile_or_card_is_told() -> None:
    with pytest.raises(UsageFault, match="no MIG profile of a100-40gb"):
        place(A100, ["1g.10gb", "5g.30gb"])
    with pytest.raises(UsageFault, match="t4-16gb has no MIG"):
        card("t4-16gb")


def test_layouts_are_full_and_fit() -> None:
    found = layouts(A100)
    assert ("7g.40gb",) in found
    assert ("1g.5gb",) * 7 in found
    assert len(found) == len(set(found))
    for names in found:
        assert place(A100, names) is not None
        assert all(place(A100, (*names, one.name)) is None for one in A100.profiles)


def test_a_name_is_a_card_or_a_slice() -> None:
    assert slice_of("a100") is None
    assert slice_of(None) is None
    assert slice_of("a100_1g.5gb") == slice_of("1g.5gb")
    assert slice_of("4c.3g.20gb") is None  # more than its instance has
    shared = slice_of("2c.3g.20gb")
    assert shared is not None
    assert (shared.compute, shared.of, shared.whole) == (2, 3, False)


def test_memory_that_a_job_may_count_on() -> None:
    assert slice_mib("1g.5gb") == 4864
    # an A100-80GB has less under this name than an H100-80GB
    assert slice_mib("1g.10gb") == slice_mib("1g.10gb", "a100-80gb") == 9728
    assert slice_mib("1g.10gb", "h100-80gb") == 9984
    # two compute instances share 20096 MiB: together they never count on more
    one, two = slice_mib("1c.3g.20gb"), slice_mib("2c.3g.20gb")
    assert one is not None and two is not None
    assert one + two <= 20096
    assert slice_mib("9g.20gb") is None
    assert slice_mib("1g.99gb") is None


def test_a_card_is_known_by_its_nvml_name() -> None:
    assert kind_of("NVIDIA A100-SXM4-40GB", 40960) == "a100-40gb"
    assert kind_of("NVIDIA A100 80GB PCIe", 81920) == "a100-80gb"
    assert kind_of("NVIDIA H100 80GB HBM3", 81559) == "h100-80gb"
    assert kind_of("NVIDIA H100 NVL", 95830) == "h100-94gb"
    assert kind_of("Tesla T4", 15360) is None
