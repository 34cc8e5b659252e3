# SPDX-License-Identifier: Apache-2.0
"""The gate by node: a GPU whose job bears no further neighbour counts as full.

On real daemons: tests/cluster/test_node_gate.py.
"""

import asyncio
import json
from pathlib import Path

import pytest

from slurm_coloc.adapters.store import Store
from slurm_coloc.config import parse_config
from slurm_coloc.core.binding import Gpu, NodeUse
from slurm_coloc.core.cluster import ClusterShape, NodeShape
from slurm_coloc.flow.gpus import Live
from slurm_coloc.flow.nodegate import NodeGate

SHAPE = ClusterShape("c", (24, 11, 5), (NodeShape("n1", ("gpu",), (), None, 2, 78),))
CONFIG = parse_config({"placement": {"node_gate": True, "smact_gate": 0.8}}, "test")


class Slurm:
    """One node with its Extra."""

    extra = ""

    async def config(self) -> dict[str, str]:
        return {"SchedulerParameters": "extra_constraints"}

    async def usage(self) -> tuple[NodeUse, ...]:
        gpus = (Gpu(0, 39), Gpu(0, 39))
        return (NodeUse("n1", ("gpu",), True, 32, 0, 1000, 0, None, gpus, extra=self.extra),)

    async def set_node_extra(self, node: str, text: str) -> None:
        self.extra = text


@pytest.mark.parametrize(
    ("closed", "pct"),
    [((), 20), (("GPU-0",), 90), (("GPU-1",), 20), (("GPU-0", "GPU-1"), 100)],
)
def test_a_closed_gpu_counts_as_full(tmp_path: Path, closed: tuple[str, ...], pct: int) -> None:
    live, slurm = Live(Store.open(tmp_path)), Slurm()
    gpus = [
        {"uuid": f"GPU-{n}", "index": n, "total_mib": 40536, "free_mib": 1, "smact": smact}
        for n, smact in enumerate((0.2, 0.9))
    ]
    live.take("n1", {"gpus": gpus})
    gate = NodeGate(CONFIG, slurm, live, lambda: SHAPE, lambda: closed)  # type: ignore[arg-type]
    asyncio.run(gate.round())
    assert json.loads(slurm.extra) == {"smact": pct}
