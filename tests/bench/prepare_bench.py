# SPDX-License-Identifier: Apache-2.0
"""Time of estimates of texts that were never seen, in colocd's limited children.

    .venv/bin/python tests/bench/prepare_bench.py [--texts 500] [--at-a-time 1]

The texts are the examples, each time with another last line. alone: nobody else sends any. bombs: a
user sends texts that are long to read, one after another on eight tasks. Memory is that of the warm
process and its children, what they share counted once.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import statistics
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from slurm_coloc.config import EstimateConfig  # noqa: E402
from slurm_coloc.estimate.request import Given  # noqa: E402
from slurm_coloc.flow.prepare.estimates import Estimates  # noqa: E402
from tests.cluster.scripts import bombs  # noqa: E402
from tests.unit.estimate.bombs import pack  # noqa: E402

EXAMPLES = [path.read_text() for path in sorted((ROOT / "etc" / "examples").glob("*.txt"))]
HONEST, HOSTILE = 1001, 1002
GIVEN = Given(batch_size=32)


def memory_mib(pid: int) -> float:
    """Pss of a process and its children."""
    total = 0
    with contextlib.suppress(OSError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for one in (str(pid), *children):
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{one}/smaps_rollup").read_text().splitlines():
                    total += int(line.split()[1]) if line.startswith("Pss:") else 0
    return total / 1024


class Run:
    """Milliseconds and outcomes of so many texts, and the memory meanwhile."""

    def __init__(self, estimates: Estimates) -> None:
        self._estimates = estimates
        self.took_ms: list[float] = []
        self.without: Counter[str] = Counter()
        self.most_mib = 0.0

    async def text(self, packed: str, uid: int) -> None:
        """One text of a user."""
        began = time.perf_counter()
        found = (await self._estimates.prepare(uid, packed, GIVEN)).of("", "", 1)
        self.took_ms.append(1000 * (time.perf_counter() - began))
        if found.estimate is None:
            self.without[f"{found.no_estimate}: {found.detail[:60]}"] += 1

    async def watch(self) -> None:
        """Look at the memory."""
        while True:
            pid = self._estimates._children.pid
            self.most_mib = max(self.most_mib, memory_mib(pid) if pid else 0.0)
            await asyncio.sleep(0.05)

    async def bomb(self, numbers: "itertools.count[int]") -> None:
        """Send bombs."""
        for number in numbers:
            request = await asyncio.to_thread(bombs.request, number)
            packed = json.loads(request)["coloc"]["summary"]
            found = (await self._estimates.prepare(HOSTILE, packed, GIVEN)).of("", "", 1)
            self.without[f"bomb {found.no_estimate}: {found.detail[:60]}"] += 1


async def measure(name: str, texts: int, at_a_time: int, hostile: int, salt: str) -> None:
    """Print one row."""
    estimates = Estimates(EstimateConfig())
    await estimates.start()
    run = Run(estimates)
    numbers = itertools.count()
    others = [asyncio.create_task(run.bomb(numbers)) for _ in range(hostile)]
    others.append(asyncio.create_task(run.watch()))
    packed = [
        pack(f"{EXAMPLES[number % len(EXAMPLES)]}\n{salt} {name} {number}\n")
        for number in range(texts)
    ]
    todo = iter(packed)

    async def user(uid: int) -> None:
        for one in todo:
            await run.text(one, uid)

    await asyncio.gather(*(user(HONEST + 10 * number) for number in range(at_a_time)))
    for task in others:
        task.cancel()
    estimates.close()
    found = sorted(run.took_ms)
    late = found[min(len(found) - 1, int(len(found) * 0.99))]
    print(
        f"{name:<8} {len(found):>6} {statistics.median(found):>9.1f} {late:>9.1f}"
        f" {found[-1]:>9.1f} {run.most_mib:>9.0f}"
    )
    for what, count in run.without.most_common():
        print(f"         {count:>6} {what}")


def main() -> None:
    """Both states."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=500)
    parser.add_argument("--at-a-time", type=int, default=1, help="users who send them")
    given = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors")
    print(f"{'':8} {'texts':>6} {'p50 ms':>9} {'p99 ms':>9} {'most ms':>9} {'most MiB':>9}")
    salt = os.urandom(4).hex()
    for name, hostile in (("alone", 0), ("bombs", 8)):
        asyncio.run(measure(name, given.texts, given.at_a_time, hostile, salt))


if __name__ == "__main__":
    main()
