# SPDX-License-Identifier: Apache-2.0
"""The gate by node: a GPU whose job bears no further neighbour counts as full.

On real daemons: tests/cluster/test_node_gate.py.
"""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.adapters.store import Store
from slurm_coloc.config import parse_config
from slurm_coloc.core.decide.decision import Action, Decision, Reason
from slurm_coloc.core.decide.request import JobRequest
from slurm_coloc.core.decide.rewrite import Rewrite
from slurm_coloc.core.slurm.binding import Gpu, NodeUse
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeShape
from slurm_coloc.errors import SlurmError
from slurm_coloc.flow.cluster.context import ShareRequest
from slurm_coloc.flow.cluster.telemetry import Live
from slurm_coloc.flow.place.node_gate import NodeGate
from tests.unit.flow.contexts import context

NODE = NodeShape("n1", ("gpu",), (), None, 2, 78, cpus=32, memory_mib=1000)
SHAPE = ClusterShape("c", (24, 11, 5), (NODE,), constraints=True)
CONFIG = parse_config({"placement": {"node_gate": True, "smact_gate": 0.8}}, "test")


class Slurm:
    """One node with its Extra."""

    extra = ""

    async def usage(self) -> tuple[NodeUse, ...]:
        gpus = (Gpu(0, 39), Gpu(0, 39))
        return (NodeUse("n1", ("gpu",), True, 32, 0, 1000, 0, None, gpus, extra=self.extra),)

    async def node_extra(self, node: str) -> str:
        return self.extra

    async def set_node_extra(self, node: str, text: str) -> None:
        self.extra = text


@pytest.mark.parametrize(
    ("closed", "pct"),
    [((), 20), (("GPU-0",), 90), (("GPU-1",), 20), (("GPU-0", "GPU-1"), 100)],
)
def test_a_closed_gpu_counts_as_full(tmp_path: Path, closed: tuple[str, ...], pct: int) -> None:
    store, slurm = Store.open(tmp_path), Slurm()
    live = Live(store)
    gpus = [
        {"uuid": f"GPU-{n}", "index": n, "total_mib": 40536, "free_mib": 1, "smact": smact}
        for n, smact in enumerate((0.2, 0.9))
    ]
    live.take("n1", {"gpus": gpus})
    gate = NodeGate(context(store, slurm, CONFIG, live=live, shape=SHAPE), lambda: closed)
    asyncio.run(gate.round())
    assert json.loads(slurm.extra) == {"smact": pct, "coloc": 1}


REQUEST = JobRequest(1000, partition="gpu", tres_per_node="gres/gpu:1")
SHARE = Decision(Action.COLLOCATE, Reason.FITS, 12, None, 39)
CHANGE = Rewrite({"tres_per_node": "gres/shard:12"})


class Several(Slurm):
    """Nodes with an Extra each, as they are asked for and set."""

    def __init__(self, *names: str) -> None:
        self.extras = dict.fromkeys(names, "")

    async def usage(self) -> tuple[NodeUse, ...]:
        gpus = (Gpu(0, 39), Gpu(0, 39))
        return tuple(
            NodeUse(name, ("gpu",), True, 32, 0, 1000, 0, None, gpus, extra=extra)
            for name, extra in self.extras.items()
        )

    async def node_extra(self, node: str) -> str:
        return self.extras[node]

    async def set_node_extra(self, node: str, text: str) -> None:
        self.extras[node] = text


def gate_of(tmp_path: Path, shape: ClusterShape, slurm: Slurm, config: Any = CONFIG) -> NodeGate:
    store = Store.open(tmp_path)
    live = Live(store)
    return NodeGate(context(store, slurm, config, live=live, shape=shape))


def test_a_job_asks_only_among_nodes_that_can_have_it(tmp_path: Path) -> None:
    """Else Slurm takes it for impossible while only another node is quiet (ADR 21)."""
    shape = replace(
        SHAPE,
        nodes=(
            NODE,
            replace(NODE, name="n2", shards=10),  # too small a GPU
            replace(NODE, name="n3", cpus=2),
            replace(NODE, name="n4"),
            replace(NODE, name="n5", partitions=("other",)),
        ),
    )
    slurm = Several("n1", "n2", "n3", "n4", "n5")
    gate = gate_of(tmp_path, shape, slurm)
    nodes, asks = ("n1", "n2", "n3", "n4"), replace(REQUEST, min_cpus=8)
    assert gate.at_submit(ShareRequest("d", asks, SHARE, 0.2, CHANGE), nodes) == CHANGE, (
        "no node has the keys yet"
    )
    asyncio.run(gate.round())
    assert gate.carry == {"n1": 1, "n2": 2, "n3": 3, "n4": 4, "n5": 5}
    found = gate.at_submit(ShareRequest("d", asks, SHARE, 0.2, CHANGE), nodes)
    assert found.fields["extra"] == "smact<80&(coloc=1|coloc=4)"


@pytest.mark.parametrize(
    "change",
    [{"min_nodes": 2}, {"reservation": "course"}, {"features": "[rack1*2]"}],
)
def test_what_is_not_judged_is_not_gated(tmp_path: Path, change: dict[str, Any]) -> None:
    gate = gate_of(tmp_path, SHAPE, Several("n1"))
    asyncio.run(gate.round())
    assert gate.at_submit(ShareRequest("d", REQUEST, SHARE, 0.2, CHANGE), ("n1",)) != CHANGE
    assert (
        gate.at_submit(ShareRequest("d", replace(REQUEST, **change), SHARE, 0.2, CHANGE), ("n1",))
        == CHANGE
    )
    other = Rewrite({"tres_per_node": "gres/shard:12,gres/nvme:1"})
    assert gate.at_submit(ShareRequest("d", REQUEST, SHARE, 0.2, other), ("n1",)) == other


def test_the_switch_off_and_an_orderly_end_open_the_gate(tmp_path: Path) -> None:
    thrown: list[int] = []
    store, slurm = Store.open(tmp_path), Several("n1", "n2")
    live = Live(store)
    gate = NodeGate(context(store, slurm, CONFIG, live=live, shape=SHAPE, off=lambda: bool(thrown)))
    live._began_s -= 61.0
    busy = {"uuid": "GPU-0", "index": 0, "total_mib": 40536, "free_mib": 1, "smact": 0.9}
    live.take("n1", {"gpus": [busy]})
    for _ in range(2):
        asyncio.run(gate.round())
        assert json.loads(slurm.extras["n1"])["smact"] == 90
        thrown.append(1)
        asyncio.run(gate.round())
        assert json.loads(slurm.extras["n1"])["smact"] == 0
        thrown.clear()
    asyncio.run(gate.round())
    asyncio.run(gate.close())
    assert slurm.extras == {"n1": '{"smact":0,"coloc":1}', "n2": ""}, "n2 has no shards of ours"


def test_a_node_that_refuses_keeps_no_other_back(tmp_path: Path) -> None:
    slurm = Several("n1", "n2", "n3")
    slurm.extras["n2"] = "rack b7"  # not ours to touch

    async def refuse(node: str, text: str) -> None:
        if node == "n1":
            raise SlurmError("Invalid node name specified", "slurm-refused")
        slurm.extras[node] = text

    slurm.set_node_extra = refuse  # type: ignore[method-assign]
    nodes = tuple(replace(NODE, name=name) for name in slurm.extras)
    gate = gate_of(tmp_path, replace(SHAPE, nodes=nodes), slurm)
    asyncio.run(gate.round())
    assert gate.carry == {"n3": 3}
    assert gate.at_submit(ShareRequest("d", REQUEST, SHARE, 0.2, CHANGE), ("n1", "n3")) == CHANGE


def test_a_restart_opens_no_gate(tmp_path: Path) -> None:
    slurm = Several("n1")
    slurm.extras["n1"] = '{"smact":90,"coloc":7}'
    gate = gate_of(tmp_path, SHAPE, slurm)
    asyncio.run(gate.round())
    assert slurm.extras == {"n1": '{"smact":90,"coloc":7}'}
    gate._live._began_s -= 61.0  # and its agent never came back
    asyncio.run(gate.round())
    assert slurm.extras == {"n1": '{"smact":0,"coloc":7}'}


def test_without_the_gate_nodes_are_opened_once(tmp_path: Path) -> None:
    slurm = Several("n1", "n2")
    slurm.extras["n1"] = '{"smact":90,"coloc":7}'
    gate = gate_of(tmp_path, SHAPE, slurm, parse_config({}, "test"))
    asyncio.run(gate.round())
    assert slurm.extras == {"n1": '{"smact":0,"coloc":7}', "n2": ""}
    assert gate.carry == {}
