# SPDX-License-Identifier: Apache-2.0
"""A made-up month of a cluster, as `sacct -P` would print it.

    python -m tests.unit.sim.month 4000 32 > month.txt

Jobs come more by day than by night and in bursts of one user, run for a log-normal time with a
limit that people round up generously, mostly on one GPU, and started in strict order.
"""

import heapq
import math
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from random import Random

from slurm_coloc.sim.readers.sacct import COLUMNS

START = datetime(2026, 10, 1)
DAYS = 30.0


def lines(jobs: int, gpus: int, seed: int = 1, load: float = 0.9) -> Iterator[str]:
    """The file, line by line. ``load``: GPU hours asked for over those that there are."""
    rng = Random(seed)
    asked = sorted(_asked(rng, jobs))
    used = sum(min(count, gpus) * run_s for _, _, count, run_s in asked)
    scale = load * gpus * DAYS * 86400 / used
    yield COLUMNS.replace(",", "|")
    running: list[tuple[int, int]] = []
    free, now = gpus, 0
    for number, (submit_s, user, count, run_s) in enumerate(asked, 1001):
        count, run_s = min(count, gpus), max(20, round(run_s * scale))
        now = max(now, submit_s)
        while running and (running[0][0] <= now or free < count):
            end_s, back = heapq.heappop(running)
            free += back
            now = max(now, end_s)
        free -= count
        heapq.heappush(running, (now + run_s, count))
        yield _line(rng, number, user, submit_s, now, run_s, count)


def _asked(rng: Random, jobs: int) -> Iterator[tuple[int, int, int, float]]:
    left = jobs
    while left:
        burst = min(left, 1 + int(rng.expovariate(0.4)))
        left -= burst
        day, hour = rng.uniform(0, DAYS - 1), rng.gauss(14, 4) % 24
        submit_s, user = round((int(day) * 24 + hour) * 3600), int(rng.paretovariate(0.9)) % 40
        count = rng.choices((1, 2, 4, 8), (85, 8, 5, 2))[0]
        for place in range(burst):
            yield submit_s + 20 * place, user, count, math.exp(rng.gauss(8.5, 1.4))


def _line(
    rng: Random, number: int, user: int, submit_s: int, start_s: int, run_s: int, gpus: int
) -> str:
    state = rng.choices(("COMPLETED", "FAILED", "CANCELLED by 0"), (80, 12, 8))[0]
    limit_min = math.ceil(run_s * rng.uniform(1.2, 4) / 3600) * 60
    tres = f"billing={8 * gpus},cpu={8 * gpus},gres/gpu:a100={gpus},gres/gpu={gpus},mem=64G,node=1"
    cells = (
        number, f"user{user}", f"lab{user % 6}", "gpu", _time(submit_s), _time(start_s),
        _time(start_s + run_s), run_s, limit_min, state, tres, "",
    )  # fmt: skip
    return "|".join(str(cell) for cell in cells)


def _time(seconds: int) -> str:
    return (START + timedelta(seconds=seconds)).isoformat()


if __name__ == "__main__":
    print("\n".join(lines(int(sys.argv[1]), int(sys.argv[2]))))
