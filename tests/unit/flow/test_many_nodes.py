# SPDX-License-Identifier: Apache-2.0
"""A submission on a cluster of thousands of nodes is decided by the kinds of node: the nodes
themselves are not read. What needs each of them is made once for many submissions."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.adapters.store import Store
from slurm_coloc.config import Config, ModeConfig, parse_config
from slurm_coloc.core.decide.request import JobRequest
from slurm_coloc.core.slurm.cluster import (
    ClusterShape,
    NodeShape,
    PartitionShape,
    SharedGpu,
    mig_types,
    shared_gpus,
)
from slurm_coloc.flow.cluster.supposed import SupposedShards
from slurm_coloc.flow.submit.decide import Decider
from slurm_coloc.flow.submit.tickets import Texts
from tests.unit.flow.test_after_answers import MESSAGE, OPTIONS
from tests.unit.flow.test_history import SHAPE
from tests.unit.flow.test_supposed import SHAPE as WITHOUT_SHARDS
from tests.unit.flow.test_supposed import Cards
from tests.unit.flow.texts import teach

NODES = 300


class NotRead(tuple[NodeShape, ...]):
    """Nodes that nobody may go through."""

    def __iter__(self) -> Iterator[NodeShape]:
        raise AssertionError("a submission went through the nodes")


def many(shape: ClusterShape) -> ClusterShape:
    first = shape.nodes[0]
    nodes = tuple(replace(first, name=f"n{n}", memory_mib=1000 + n) for n in range(NODES))
    return replace(shape, nodes=nodes)


@pytest.mark.parametrize("mode", ["on", "observe"])
def test_a_submission_reads_no_node(mode: str, tmp_path: Path) -> None:
    config, texts = parse_config({"version": 1, "mode": {"default": mode}}, "a test"), Texts()
    decider = Decider(config, Store.open(tmp_path), texts=texts)
    teach(texts, config.estimate, 1001, OPTIONS)
    few, shape = SHAPE, many(SHAPE)
    object.__setattr__(shape, "nodes", NotRead(shape.nodes))
    messages: list[dict[str, Any]] = [
        MESSAGE | {"coloc": OPTIONS},
        MESSAGE | {"coloc": OPTIONS, "tres_per_node": "gres/gpu:a100:1"},
        MESSAGE | {"coloc": OPTIONS | {"policy": "exclusive"}},
        MESSAGE | {"coloc": {"batch_size": 64}},
    ]
    for message in messages:
        here, there = (asyncio.run(decider.submit(dict(message), one)) for one in (few, shape))
        for field in ("decision", "admin_comment"):  # with the decision's own number
            here.pop(field), there.pop(field)
        assert here == there


def test_kinds_of_nodes() -> None:
    a100 = NodeShape("n1", ("main",), ("new",), "a100", 4, 156, cpus=64)
    cut = NodeShape("m1", ("main", "mig"), (), "a100", 1, 39, slices=(("1g.5gb", 7),))
    nodes = (a100, replace(a100, name="n2", usable=False, address="10.0.0.2"))
    nodes += (replace(a100, name="n3", features=("old",)), cut, replace(cut, name="m2"))
    shape = ClusterShape("c", (24, 11), nodes, (PartitionShape("main", default=True),))
    assert [(one.node.name, one.count) for one in shape.kinds] == [("n1", 2), ("n3", 1), ("m1", 2)]
    assert replace(shape, nodes=(cut,)).kinds[0].node is cut
    request = JobRequest(uid=1, tres_per_node="gres/gpu:1")
    [device] = mig_types(request, shape, ())
    assert (device.type, device.count) == ("1g.5gb", 14)
    new = replace(request, features="new")
    assert shared_gpus(new, None, shape, (), nodes=2) == (SharedGpu("a100", 39),)
    assert shared_gpus(new, None, shape, (), nodes=3) == ()


def test_supposed_shards_are_made_once() -> None:
    made, observe, cards = SupposedShards(), Config(), Cards()
    found = made.shape(observe, WITHOUT_SHARDS, cards)  # type: ignore[arg-type]
    assert found is not None and found.nodes[0].shards == 78
    assert made.shape(observe, WITHOUT_SHARDS, cards) is found  # type: ignore[arg-type]
    # Another configuration, or another look at the cluster, counts at once.
    on = Config(mode=ModeConfig(default="on"))
    assert made.shape(on, WITHOUT_SHARDS, cards) is WITHOUT_SHARDS  # type: ignore[arg-type]
    assert made.shape(observe, None, cards) is None  # type: ignore[arg-type]
