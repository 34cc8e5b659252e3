# SPDX-License-Identifier: Apache-2.0
"""What binds a waiting job."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_coloc.core.slurm.binding import (
    Binding,
    Gpu,
    Need,
    NodeUse,
    Resource,
    binding,
    binding_text,
    packed,
    shortages,
)

NODE = NodeUse(
    name="n1",
    partitions=("main",),
    usable=True,
    cpus=32,
    cpus_used=4,
    memory_mib=128000,
    memory_used_mib=8000,
    gpu_type="a100",
    gpus=(Gpu(12, 39), Gpu(30, 39)),
)
MAIN = ("main",)


def _bound(need: Need, *nodes: NodeUse) -> Binding:
    return binding(need, MAIN, nodes or (NODE,))


def _names(found: Binding) -> list[str]:
    return [str(one.resource) for one in found.shorts]


def test_fits_now() -> None:
    found = _bound(Need(cpus=1, memory_mib=1000, shards=27))
    assert found == Binding("n1", (), True)
    assert "jobs before it" in binding_text(found)


def test_a_node_that_is_another_users_now() -> None:
    """ExclusiveUser, the default way of sharing.with = "user": nothing is short there, and it does
    not start. (It was told that jobs before it came first.)"""
    need, taken = Need(shards=5), replace(NODE, owner_uid=1001)
    found = binding(need, MAIN, (taken,), 1000)
    assert found.apart and "another user's jobs alone" in binding_text(found)
    assert not binding(need, MAIN, (taken,), 1001).apart
    full = replace(NODE, name="n2", gpus=(Gpu(39, 39),))
    assert binding(need, MAIN, (taken, full), 1000).node == "n2", "its own turn comes there"
    assert "ever" in binding_text(binding(Need(shards=50), MAIN, (taken,), 1000))


def test_shards_are_counted_on_one_gpu() -> None:
    """36 shards are free on the node, but 27 at most on one GPU."""
    found = _bound(Need(shards=28))
    assert _names(found) == ["shards"]
    assert (found.shorts[0].needed, found.shorts[0].free, found.shorts[0].total) == (28, 27, 39)
    assert "28 shards on one GPU needed, 27 free" in binding_text(found)


def test_cpus_and_memory() -> None:
    assert _names(_bound(Need(cpus=29, shards=1))) == ["cpus"]
    assert _names(_bound(Need(memory_mib=120001, shards=1))) == ["memory"]
    assert _names(_bound(Need(cpus=29, memory_mib=120001, shards=39))) == [
        "shards", "cpus", "memory",
    ]  # fmt: skip


def test_a_whole_gpu_needs_one_that_nobody_uses() -> None:
    assert _names(_bound(Need(gpus=1))) == ["gpu"]
    free = replace(NODE, gpus=(Gpu(12, 39), Gpu(0, 39)))
    assert _bound(Need(gpus=1), free).shorts == ()
    taken = replace(NODE, gpus=(Gpu(12, 39), Gpu(0, 39, whole=True)))
    assert _names(_bound(Need(gpus=1), taken)) == ["gpu"]
    assert _names(_bound(Need(shards=30), taken)) == ["shards"]


def test_never() -> None:
    found = _bound(Need(shards=40))
    assert not found.possible
    assert "ever" in binding_text(found)


def test_nearest_node_is_the_one_that_lacks_least() -> None:
    full = replace(NODE, name="full", gpus=(Gpu(39, 39), Gpu(39, 39)))
    near = replace(NODE, name="near", gpus=(Gpu(20, 39), Gpu(39, 39)))
    busy = replace(NODE, name="busy", gpus=(Gpu(20, 39),), cpus_used=32)
    assert _bound(Need(shards=20), full, busy, near).node == "near"
    small = replace(NODE, name="a-small", gpus=(Gpu(0, 10),))
    assert _bound(Need(shards=20), small, near).node == "near", "one that never can comes last"


def test_other_partitions_and_nodes_out_of_service_do_not_count() -> None:
    elsewhere = replace(NODE, name="b", partitions=("other",))
    down = replace(NODE, name="c", usable=False)
    found = _bound(Need(shards=1), elsewhere, down)
    assert found == Binding(None, (), False)
    assert "in service" in binding_text(found)


def test_gpu_type() -> None:
    found = _bound(Need(shards=1, gpu_type="h100"))
    assert not found.possible and _names(found) == ["shards"]


def test_packed() -> None:
    assert packed([12, 39], 39, 0, 2) == (Gpu(12, 39), Gpu(39, 39))
    assert packed([8] * 8, 39, 0, 2) == (Gpu(32, 39), Gpu(32, 39)), "7 free on each, not 14"
    assert packed([], 39, 1, 2) == (Gpu(0, 39), Gpu(0, 39, whole=True))


counts = st.integers(0, 50)


@given(cpus=counts, memory=counts, shards=counts, gpus=st.integers(0, 3), used=counts)
def test_a_shortage_is_always_more_needed_than_free(
    cpus: int, memory: int, shards: int, gpus: int, used: int
) -> None:
    node = NodeUse("n", MAIN, True, 32, used, 40, used, None, packed([used], 39, 0, 2))
    for one in shortages(Need(cpus, memory, shards, gpus), node):
        assert one.needed > one.free >= 0
        assert isinstance(one.resource, Resource)


FREE = replace(NODE, name="n1", features=("pcie",))
FULL = replace(NODE, name="n2", gpus=(Gpu(39, 39),), features=("pcie", "nvlink"))


@pytest.mark.parametrize(
    "need",
    [
        Need(shards=10, req_nodes="n[2-9]"),
        Need(shards=10, exc_nodes="n[1,3]"),
        Need(shards=10, features="pcie&nvlink"),
    ],
)
def test_only_nodes_that_it_may_get(need: Need) -> None:
    """-w, --exclude, --constraint: it would not fit on a free node that it may not get."""
    assert _bound(Need(shards=10), FREE, FULL) == Binding("n1")
    found = _bound(need, FREE, FULL)
    assert (found.node, _names(found)) == ("n2", ["shards"])
    nowhere = _bound(need, FREE)
    assert nowhere == Binding(None, possible=False)
    assert "that it may get" in binding_text(nowhere)
