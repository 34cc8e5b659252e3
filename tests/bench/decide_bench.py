# SPDX-License-Identifier: Apache-2.0
"""What a submission costs colocd by the number of nodes: from the hook's message to the answer, its
record in the database included; without slurmctld and the hook's connection.

.venv/bin/python -m tests.bench.decide_bench [NODES ...]    (10, 100, 1,000 and 10,000)
"""

import asyncio
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import structlog

from slurm_coloc.adapters.store import Store
from slurm_coloc.config import parse_config
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeShape, PartitionShape
from slurm_coloc.estimate.request import WARM_UP
from slurm_coloc.flow.cluster.supposed import SupposedShards
from slurm_coloc.flow.cluster.telemetry import Live
from slurm_coloc.flow.submit.decide import Decider
from slurm_coloc.flow.submit.tickets import Texts
from tests.unit.flow.texts import pack, teach

SIZES = (10, 100, 1_000, 10_000)
ROUNDS = 300
UID = 1001
OPTIONS = {"summary": pack(WARM_UP), "batch_size": 64}
MESSAGE = {"v": 1, "op": "submit", "uid": UID, "tres_per_node": "gres/gpu:1", "coloc": OPTIONS}
WAYS = {
    "native": {"mode": {"default": "on"}},
    "steered": {"mode": {"default": "on"}, "placement": {"mode": "steered"}},
    "observe, no shards yet": {"mode": {"default": "observe"}},
}


def cluster(way: str, nodes: int) -> ClusterShape:
    """So many nodes with eight GPUs."""
    devices = tuple(f"a100-{gpu}" for gpu in range(8)) if way == "steered" else ()
    shards = 0 if way.startswith("observe") else 312
    one = NodeShape("n", ("gpu",), (), "a100", 8, shards, cpus=64, devices=devices)
    there = tuple(replace(one, name=f"n{number}", memory_mib=number) for number in range(nodes))
    return ClusterShape("c", (24, 11), there, (PartitionShape("gpu", default=True),))


async def _times_ms(way: str, nodes: int, folder: Path) -> list[float]:
    config, texts = parse_config({"version": 1, **WAYS[way]}, "a benchmark"), Texts()
    store = Store.open(folder)
    live, supposed, shape = Live(store), SupposedShards(), cluster(way, nodes)
    decider = Decider(config, store, texts=texts)
    teach(texts, config.estimate, UID, OPTIONS)
    found = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        await decider.submit(dict(MESSAGE), supposed.shape(config, shape, live))
        found.append((time.perf_counter() - begin) * 1000)
    store.close()
    return found


def main(sizes: list[int]) -> None:
    """Print the table."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    print("".join(f"{size:>18,}" for size in sizes).rjust(24 + 18 * len(sizes)) + " nodes")
    for way in WAYS:
        row = f"{way:<24}"
        for size in sizes:
            with tempfile.TemporaryDirectory() as folder:
                times = asyncio.run(_times_ms(way, size, Path(folder)))
            p99 = statistics.quantiles(times, n=100)[98]
            row += f"{statistics.median(times):>10.2f} {p99:>7.2f}"
        print(f"{row} ms: median, 99 %")


if __name__ == "__main__":
    main([int(one.replace(",", "")) for one in sys.argv[1:]] or list(SIZES))
