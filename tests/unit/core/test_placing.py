# SPDX-License-Identifier: Apache-2.0
"""When a job may be put on a GPU."""

from dataclasses import replace

import pytest

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.core.place.gpu_slot import GpuSlot, Host, Measured, PlaceRequest, Resident
from slurm_coloc.core.place.interference import REFERENCE
from slurm_coloc.core.place.placing import Conditions, admits
from slurm_coloc.core.place.speeds import expected_speeds

ASK = PlaceRequest(1, 1, 10_000, Activity(0.5), 0.0, user="ada", account="x")
OTHER = PlaceRequest(2, 1, 20_000, Activity(0.5), 0.0, user="bob", account="x")


def slot(*requests: PlaceRequest, **more: object) -> GpuSlot:
    """A GPU with these jobs on it."""
    made = GpuSlot(0, 0, "a100-40gb", 39_936, **more)  # type: ignore[arg-type]
    for request in requests:
        made.residents.append(Resident(request))
        made.reserved_mib += request.need_mib or made.usable_mib
        made.smact += 1.0 if request.activity is None else request.activity.smact
        made.whole = made.whole or not request.share
    return made


def fits(request: PlaceRequest, where: GpuSlot, **rules: object) -> bool:
    return admits(request, where, Conditions(**rules), REFERENCE)  # type: ignore[arg-type]


def test_an_idle_gpu() -> None:
    assert fits(ASK, slot())
    assert fits(replace(ASK, need_mib=None), slot())
    assert not fits(replace(ASK, need_mib=40_000), slot())
    # Whole GPUs are given although the need is larger than any: nobody knows better.
    assert fits(replace(ASK, need_mib=None, share=False), slot())
    # Outside the pool there are whole GPUs only.
    assert not fits(ASK, slot(pool=False))
    assert fits(replace(ASK, share=False), slot(pool=False))


@pytest.mark.parametrize(
    ("change", "rules", "expected"),
    [
        ({}, {}, True),
        ({"need_mib": 19_936}, {}, True),
        ({"need_mib": 19_937}, {}, False),
        ({"need_mib": 19_937}, {"by_plan": False}, True),
        ({"need_mib": None}, {}, False),
        ({"share": False}, {}, False),
        ({"idle_only": True}, {}, False),
        ({}, {"jobs": 1}, False),
        ({}, {"budget": 1.0}, True),
        ({}, {"budget": 0.99}, False),
        ({"activity": None}, {"budget": 1.4}, False),  # counts as 1.0
        ({}, {"share_with": "account"}, True),
        ({}, {"share_with": "user"}, False),
        ({"user": "bob"}, {"share_with": "user"}, True),
        ({"account": "y"}, {"share_with": "account"}, False),
        ({}, {"max_slowdown": 1.14}, True),  # both at 1 / 1.1375
        ({}, {"max_slowdown": 1.13}, False),
        ({"max_slowdown": 1.1}, {}, False),
        ({}, {"free_mib": 2000}, False),  # telemetry shows nothing
    ],
)
def test_beside_another_job(
    change: dict[str, object], rules: dict[str, object], expected: bool
) -> None:
    request = replace(ASK, **change)  # type: ignore[arg-type]
    assert fits(request, slot(OTHER), **rules) is expected


@pytest.mark.parametrize(
    ("shown", "rules", "expected"),
    [
        (Measured(12_000), {"margin_mib": 2000}, True),
        (Measured(11_999), {"margin_mib": 2000}, False),
        (Measured(5120), {"free_mib": 5120}, True),
        (Measured(5119), {"free_mib": 5120}, False),
        (Measured(9999, smact=0.8), {"smact_at_most": 0.8}, True),
        (Measured(9999, smact=0.81), {"smact_at_most": 0.8}, False),
        # CARMA's later gate: busy SMs alone do not refuse.
        (Measured(9999, 0.9, 0.44, 0.39), {"smocc_at_least": 0.45, "drama_at_least": 0.40}, True),
        (Measured(9999, 0.9, 0.45, 0.10), {"smocc_at_least": 0.45, "drama_at_least": 0.40}, False),
        (Measured(9999, 0.9, 0.10, 0.40), {"smocc_at_least": 0.45, "drama_at_least": 0.40}, False),
    ],
)
def test_by_telemetry(shown: Measured, rules: dict[str, object], expected: bool) -> None:
    if "smocc_at_least" in rules:
        rules = {**rules, "smact_at_most": 0.8}
    assert fits(ASK, slot(OTHER, measured=shown), **rules) is expected


def test_nobody_joins_a_whole_or_an_unsettled_gpu() -> None:
    assert not fits(ASK, slot(replace(OTHER, share=False)))
    assert not fits(ASK, slot(OTHER, settled=False))


def test_a_resident_can_close_its_gpu() -> None:
    assert not fits(ASK, slot(replace(OTHER, max_slowdown=1.1)))
    assert fits(ASK, slot(replace(OTHER, max_slowdown=1.2)))


def test_a_nodes_cpus_and_memory() -> None:
    request = replace(ASK, cpus=8, host_mib=1000)
    assert fits(request, slot(host=Host(0, cpus=8, host_mib=1000)))
    assert not fits(request, slot(host=Host(0, cpus=7)))
    assert not fits(request, slot(OTHER, host=Host(0, host_mib=999)))
    # Two GPUs: half of it for each.
    assert fits(replace(request, gpus=2), slot(host=Host(0, cpus=4)))


def test_compute_instances_of_one_memory() -> None:
    beside = slot(part=True)
    beside.reserved_mib = 30_000  # by a job on the other compute instance
    assert not fits(ASK, beside)
    assert fits(replace(ASK, need_mib=9_000), beside)
    assert not fits(replace(ASK, need_mib=None), beside)


def test_mig_has_one_job_an_instance_and_two_a_gpu_that_it_may_cut() -> None:
    small = replace(OTHER, need_mib=9_000)
    assert not fits(ASK, slot(small, method="mig", part=True))
    cut = {"method": "mig", "half_mib": 19_456, "half": 42 / 108}
    assert fits(ASK, slot(small, **cut))
    assert not fits(ASK, slot(OTHER, **cut))
    assert not fits(replace(ASK, need_mib=19_500), slot(small, **cut))
    assert not fits(ASK, slot(small, small, **cut))


def test_speeds_on_a_gpu_on_an_instance_and_with_several_users() -> None:
    both = 1 / 1.1375
    assert expected_speeds(slot(OTHER), REFERENCE, ASK) == pytest.approx([both, both])
    assert expected_speeds(slot(), REFERENCE, ASK) == [1.0]
    unknown = replace(ASK, activity=None)
    assert expected_speeds(slot(unknown), REFERENCE, unknown)[0] == pytest.approx(1 / 2.1)
    turns = expected_speeds(slot(OTHER, multi_user=False), REFERENCE, ASK)
    share = Activity(0.5).engine
    assert turns == pytest.approx([1 / (2 * share)] * 2)
    # An instance of a quarter of the SMs: alone half as fast; together each fills all of it.
    small = slot(OTHER, fraction=0.25)
    assert expected_speeds(small, REFERENCE, ASK) == pytest.approx([0.5 / 2.1] * 2)
