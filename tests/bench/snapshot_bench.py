# SPDX-License-Identifier: Apache-2.0
"""What colocd's main loop does for a round of steered placement before the policy runs in a thread:
the snapshot of nodes, figures and jobs. Submissions wait meanwhile.

.venv/bin/python -m tests.bench.snapshot_bench [NODES ...]    (10, 100 and 1,000)
"""

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from slurm_coloc.adapters.store import Store
from slurm_coloc.config import parse_config
from slurm_coloc.core.place.queue_order import queue_order
from slurm_coloc.core.place.queued_jobs import Queued
from slurm_coloc.core.slurm.binding import Gpu, NodeUse
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeShape, PartitionShape
from slurm_coloc.core.slurm.qos_limits import NO_LIMITS
from slurm_coloc.flow.cluster.telemetry import Live
from slurm_coloc.flow.place.memory import Memory
from slurm_coloc.flow.place.snapshot import Sources
from tests.bench.agents_bench import GPUS, heartbeat
from tests.unit.flow.test_store import decision

SIZES = (10, 100, 1_000)
CALLS = 5
DEVICES = tuple(f"a100-{gpu}" for gpu in range(GPUS))


def jobs(nodes: int) -> list[Queued]:
    """One running job on each GPU, and ten waiting ones a node: every second one is a share."""
    found = [
        Queued(number + 1, str(number + 1), "RUNNING", 1000, 1000 + number % 50,
               partition="gpu", nodes=f"n{number // GPUS}", start_s=1.0, end_s=1e10,
               tres_per_node=f"gres/shard:{DEVICES[number % GPUS]}:6",
               admin_comment=f"coloc:1:{number:012x}:collocate:fits:6")
        for number in range(nodes * GPUS)
    ]  # fmt: skip
    for number in range(nodes * GPUS, nodes * (GPUS + 10)):
        share = number % 2
        found.append(
            Queued(number + 1, str(number + 1), "PENDING", 1000, 1000 + number % 50, "Resources",
                   partition="gpu", tres_per_node="gres/shard:6" if share else "gres/gpu:1",
                   admin_comment=f"coloc:1:{number:012x}:collocate:fits:6" if share else "")
        )  # fmt: skip
    return found


def measure(nodes: int) -> None:
    """One row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder))
        queue = jobs(nodes)
        with store.transaction():
            for number, job in enumerate(queue):
                if job.admin_comment:
                    store.decisions.add(decision(id=f"{number:012x}", uid=job.uid))
        config = parse_config({"version": 1, "placement": {"mode": "steered"}}, "a benchmark")
        one = NodeShape("n", ("gpu",), (), "a100", GPUS, 312, devices=DEVICES)
        shapes, uses, live = [], [], Live(store)
        for number in range(nodes):
            name = f"n{number}"
            shapes.append(NodeShape(name, one.partitions, (), "a100", GPUS, 312, devices=DEVICES))
            gpus = tuple(Gpu(6, 39) for _ in range(GPUS))
            uses.append(NodeUse(name, ("gpu",), True, 64, 8, 512_000, 64_000, "a100", gpus))
            live.take(name, heartbeat(number))
        shape = ClusterShape("c", (24, 11), tuple(shapes), (PartitionShape("gpu", default=True),))
        sources, order = Sources(config, store, live, Memory()), queue_order(shape, NO_LIMITS)
        times, longest = asyncio.run(_rounds(sources, shape, uses, queue, order))
        store.close()
    first, *later = times
    row = f"{nodes:>8,} {len(queue):>8,} {first:>10.0f} {statistics.median(later):>10.0f}"
    print(f"{row} {longest:>10.0f}", flush=True)


async def _rounds(sources: Sources, *of: Any) -> tuple[list[float], float]:
    """The ms of each snapshot, and the longest time in which nothing else had its turn; of the
    snapshots after the first."""
    gaps: list[float] = []

    async def others() -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0)
            now = time.perf_counter()
            gaps.append((now - last) * 1000)
            last = now

    task = asyncio.create_task(others())
    times = []
    for number in range(CALLS + 1):
        begin = time.perf_counter()
        await sources.snapshot(*of, 0)
        times.append((time.perf_counter() - begin) * 1000)
        if number == 0:
            gaps.clear()
    await asyncio.sleep(0)
    task.cancel()
    return times, max(gaps)


def main(sizes: list[int]) -> None:
    """Print the table."""
    print("   nodes     jobs   ms first   ms later   at once")
    for nodes in sizes:
        measure(nodes)


if __name__ == "__main__":
    main([int(one.replace(",", "")) for one in sys.argv[1:]] or list(SIZES))
