# SPDX-License-Identifier: Apache-2.0
"""Machines as text, and what MIG makes of them."""

import pytest

from slurm_coloc.core.gpu.mig import CARDS
from slurm_coloc.errors import UsageFault
from slurm_coloc.sim.machine import parse_machine


def test_nodes_and_gpus() -> None:
    four = parse_machine("4xa100")
    assert (four.gpus, four.nodes, four.devices[0].usable_mib) == (4, 1, 39 * 1024)
    assert four.devices[0].true_mib == 40_410
    many = parse_machine("20xa100-40gb,2x4xh200")
    assert [many.gpus, many.nodes] == [28, 5]
    assert [device.node for device in many.devices[-4:]] == [4] * 4


def test_mig_instances() -> None:
    cut = parse_machine("1xa100-40gb:3g.20gb+4g.20gb").devices
    assert [device.usable_mib for device in cut] == [19 * 1024, 19 * 1024]
    assert [device.fraction for device in cut] == [42 / 108, 56 / 108]
    assert cut[0].gpu == cut[1].gpu and cut[0].bank != cut[1].bank
    # nvidia-smi mig -lgip: 4.75, 9.75, 19.62, 39.50 GiB of an A100-40GB.
    for profile, gib in (
        ("1g.5gb", 4.75),
        ("2g.10gb", 9.75),
        ("3g.20gb", 19.62),
        ("7g.40gb", 39.5),
    ):
        true = parse_machine(f"1xa100-40gb:{profile}").devices[0].true_mib
        assert true == pytest.approx(gib * 1024, rel=0.013)


def test_mig_is_that_of_the_cards() -> None:
    """What one calls a profile has the other: names, memory and SMs come from core/gpu/mig."""
    for card in CARDS.values():
        for profile in card.profiles:
            (device,) = parse_machine(f"1x{card.kind}:{profile.name}").devices
            assert device.true_mib == profile.mib
            assert device.fraction == pytest.approx(profile.sms / card.sms)
        machine = parse_machine(f"1x{card.kind}")
        usable_mib, half = machine.halves(machine.devices[0])
        assert usable_mib <= half.mib and half.mib * 2 <= card.profiles[-1].mib + 1024
        assert 0.3 < half.half <= 0.5 < half.whole <= 1.0


def test_whole_gpus_beside_cut_ones_and_compute_instances() -> None:
    mixed = parse_machine("4xa100-40gb:3g.20gb+3g.20gb@2").devices
    assert [device.part for device in mixed] == [False, False, True, True, True, True]
    shared = parse_machine("1xa100-40gb:7g.40gb/3c/3c").devices
    assert [device.bank for device in shared] == [0, 0]
    assert [device.fraction for device in shared] == [42 / 108, 42 / 108]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "4xabacus",
        "xa100",
        "1xt4-16gb:1g.5gb",
        "1xa100-40gb:3g.10gb",
        "1xa100-40gb:5g.20gb",
        "1xa100-40gb:4g.20gb+4g.20gb",
        "1xa100-40gb:3g.20gb+3g.20gb+1g.5gb",  # nine of eight memory slices
        "1xa100-40gb:3g.20gb/2c/2c",
    ],
)
def test_what_no_gpu_can_be(text: str) -> None:
    with pytest.raises(UsageFault, match="--gpus"):
        parse_machine(text)
