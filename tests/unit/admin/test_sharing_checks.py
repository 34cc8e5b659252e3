# SPDX-License-Identifier: Apache-2.0
"""What `coloc doctor` and `coloc config check` say of who shares with whom, and of spreading."""

from dataclasses import replace

import pytest

from slurm_coloc.admin.rules import sharing
from slurm_coloc.admin.rules.finding import Finding, Status
from slurm_coloc.admin.rules.placement import cpu_jobs, native
from slurm_coloc.core.slurm.cluster import NodeWeight, PartitionShape
from tests.unit.core.conftest import a100, make_shape

OPEN = PartitionShape("main", default=True)
BESIDE = PartitionShape("beside", exclusive_user=True)
SHAPE = make_shape(a100(partitions=("main", "beside")), partitions=(OPEN, BESIDE))


def test_on_is_refused_with_the_ways() -> None:
    found = sharing.apart(SHAPE, "user", (), (), on=True)
    assert found.status is Status.FAIL
    assert found.found == (
        'no shares in partition main: sharing.with = "user", and nothing there keeps a share off'
        " other users' GPUs; --coloc jobs get whole GPUs"
    )
    for way in ('placement.mode = "steered"', "ExclusiveUser=YES", 'sharing.with = "anyone"'):
        assert way in found.todo
    assert sharing.apart(SHAPE, "user", (), (), on=False).status is Status.WARN


@pytest.mark.parametrize(
    ("share_with", "pool", "steered", "text"),
    [
        ("anyone", (), (), "anyone: jobs of all users share GPUs"),
        ("user", ("beside",), (), "user: by ExclusiveUser=YES of beside"),
        ("account", (), ("n1",), "account: by pins on n1 and ExclusiveUser=YES of beside"),
        ("user", ("cpu",), (), "user: by nobody who shares"),
    ],
)
def test_what_keeps_users_apart(
    share_with: str, pool: tuple[str, ...], steered: tuple[str, ...], text: str
) -> None:
    found = sharing.apart(SHAPE, share_with, pool, steered, on=True)  # type: ignore[arg-type]
    assert (found.status, found.found) == (Status.OK, text)


def test_one_server_for_several_users() -> None:
    assert sharing.one_server("user", "one", "auto", False).status is Status.OK
    found = sharing.one_server("anyone", "one", "auto", False)
    assert found.status is Status.WARN and 'sharing.users = "all"' in found.todo
    assert sharing.one_server("anyone", "all", "auto", False).status is Status.OK
    assert sharing.one_server("account", "one", "auto", True).status is Status.OK


@pytest.mark.parametrize(
    ("parameters", "key", "whole", "status", "said"),
    [
        ("CR_Core", "auto", 0, Status.WARN, "no job here wants whole GPUs"),
        ("CR_Core", "auto", 3, Status.OK, "first fit"),
        ("CR_Core", "auto", None, Status.OK, "first fit"),
        ("CR_Core", False, 0, Status.OK, "first fit"),
        ("CR_Core", True, 3, Status.WARN, "but placement.idle_first is true"),
        ("CR_Core,LL_SHARED_GRES", "auto", 0, Status.OK, "largest free part"),
        ("CR_Core,LL_SHARED_GRES", "auto", 3, Status.OK, "3 jobs want whole GPUs"),
        ("CR_Core,LL_SHARED_GRES", True, 3, Status.OK, "largest free part"),
        ("CR_Core,LL_SHARED_GRES", False, 0, Status.WARN, "but placement.idle_first is false"),
    ],
)
def test_least_loaded_beside_the_key(
    parameters: str, key: bool, whole: int | None, status: Status, said: str
) -> None:
    found = native({"SelectTypeParameters": parameters}, (24, 11, 5), key, whole)
    assert (found.status, said in found.found) == (status, True)
    assert status is Status.OK or "LL_SHARED_GRES" in found.todo


def weighed(*nodes: tuple[str, int, bool]) -> Finding:
    return cpu_jobs(
        NodeWeight(f"n{number}", (part, "all") if part == "cpu" else (part,), weight, gpus)
        for number, (part, weight, gpus) in enumerate(nodes)
    )


def test_nodes_with_gpus_are_filled_last() -> None:
    """In each partition that has nodes of both sorts."""
    assert weighed(("main", 1, True), ("main", 1, True)).status is Status.OK
    assert weighed(("main", 1, True), ("cpu", 1, False)).status is Status.OK
    assert weighed(("main", 10, True), ("main", 1, False)).status is Status.OK
    found = weighed(("all", 5, True), ("main", 5, True), ("cpu", 5, False))
    assert found.status is Status.WARN and found.found.endswith("others are idle: all")
    assert "Weight=N" in found.todo


def test_a_release_without_the_parameter() -> None:
    found = native({"SelectTypeParameters": "CR_Core"}, (22, 5, 8), True, 0)
    assert found.status is Status.WARN and "23.02 and later" in found.todo
    auto = native({"SelectTypeParameters": "CR_Core"}, (22, 5, 8), "auto", 0)
    assert auto.status is Status.OK


def test_partitions_without_shards_do_not_count() -> None:
    bare = replace(SHAPE, nodes=(a100(shards=0),))
    assert sharing.apart(bare, "user", (), (), on=True).status is Status.OK
