# SPDX-License-Identifier: Apache-2.0
"""Time and memory of the simulator: 100,000 jobs on 200 GPUs, and growth with jobs and GPUs.

Each row runs in a process of its own, so that its peak memory is its own. The time is that
process' CPU time (one core) from the made-up trace to the figures.
"""

import argparse
import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from slurm_coloc.core.place.activity import Activity  # noqa: E402
from slurm_coloc.core.place.placing import Conditions  # noqa: E402
from slurm_coloc.sim.machine import parse_machine  # noqa: E402
from slurm_coloc.sim.policies import policy  # noqa: E402
from slurm_coloc.sim.setting import Setting  # noqa: E402
from slurm_coloc.sim.simulate import Experiment, simulate  # noqa: E402
from slurm_coloc.sim.trace import TraceJob  # noqa: E402

#: (jobs, GPUs, policy)
ROWS = (
    (25_000, 200, "magm"),
    (50_000, 200, "magm"),
    (100_000, 200, "magm"),
    (100_000, 200, "exclusive"),
    (100_000, 200, "first-fit"),
    (50_000, 50, "magm"),
    (50_000, 100, "magm"),
    (50_000, 400, "magm"),
)
DAY_S = 86400.0


def trace(jobs: int, gpus: int, load: float = 0.9, seed: int = 1) -> list[TraceJob]:
    """Jobs that would keep ``load`` of the GPUs busy one a GPU (ratio).

    Run times are lognormal (median 20 minutes, mean about 70), arrivals a Poisson process with a
    day's rhythm (four times as many at noon as at midnight), one job in five wants 2, 4 or 8 GPUs,
    100 users of very unequal diligence, 400 trainings, one job in ten without --coloc.
    """
    rng = Random(seed)
    widths = [rng.choices((1, 2, 4, 8), (80, 10, 6, 4))[0] for _ in range(jobs)]
    runs_s = [min(3 * DAY_S, 30.0 + rng.lognormvariate(math.log(1200.0), 1.6)) for _ in widths]
    span_s = sum(a * b for a, b in zip(widths, runs_s, strict=True)) / (gpus * load)
    times = sorted(_arrival(rng, span_s) for _ in widths)
    kinds = [_training(rng) for _ in range(400)]
    out = []
    for number in range(jobs):
        memory, activity = kinds[kind := rng.randrange(len(kinds))]
        out.append(
            TraceJob(
                number,
                f"training-{kind}",
                times[number],
                widths[number],
                runs_s[number],
                memory,
                activity,
                user=f"user{int(rng.paretovariate(1.0)) % 100}",
                limit_s=runs_s[number] * rng.uniform(1.2, 6.0),
                coloc=rng.random() >= 0.1,
            )
        )
    return out


def _arrival(rng: Random, span_s: float) -> float:
    while True:
        when_s = rng.uniform(0.0, span_s)
        if rng.random() < 0.625 - 0.375 * math.cos(2 * math.pi * when_s / DAY_S):
            return when_s


def _training(rng: Random) -> tuple[int, Activity]:
    smact = rng.choice((rng.uniform(0.07, 0.25), rng.uniform(0.4, 0.7), rng.uniform(0.75, 0.95)))
    memory = math.exp(rng.uniform(math.log(1500), math.log(8000 + 24000 * smact)))
    return int(memory), Activity(smact, drama=smact * rng.uniform(0.2, 0.6))


def once(jobs: int, gpus: int, name: str) -> dict[str, float]:
    """One row's figures."""
    machine = parse_machine(f"{gpus}xa100-40gb")
    setting = Setting(conditions=Conditions(budget=1.6), depth=100)
    made = trace(jobs, gpus)
    begin = time.process_time()
    answer = simulate(Experiment(made, machine, policy(name), setting))
    seconds = time.process_time() - begin
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    wait = answer["mean_wait_s"]
    assert isinstance(wait, float)
    return {"seconds": seconds, "mib": mib, "wait_s": wait}


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def main(arguments: Sequence[str] = ()) -> int:
    """Print the table; ``--row N`` prints one row's JSON, ``--rows N`` the first rows only."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--row", type=int)
    parser.add_argument("--rows", type=int, default=len(ROWS))
    given = parser.parse_args(arguments)
    if given.row is not None:
        print(json.dumps(once(*ROWS[given.row])))
        return 0
    print(
        f"{'jobs':>7} {'GPUs':>5} {'policy':<12} {'CPU s':>7} {'peak MiB':>9} {'mean wait s':>12}"
    )
    for number, (jobs, gpus, name) in enumerate(ROWS[: given.rows]):
        answer = subprocess.run(
            [sys.executable, __file__, "--row", str(number)], check=True, stdout=subprocess.PIPE
        )
        found = json.loads(answer.stdout)
        print(
            f"{jobs:>7} {gpus:>5} {name:<12} {found['seconds']:>7.1f} {found['mib']:>9.0f}"
            f" {found['wait_s']:>12.0f}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
