# SPDX-License-Identifier: Apache-2.0
"""Time of one round of steered placement, and of a plan (placement.plan), on one core.

A made-up snapshot: 8 GPUs a node, a third of them with whole-GPU jobs, the others with up to three
shares; of the waiting jobs a third wants whole GPUs. The time is the process' CPU time.
"""

import sys
import time
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from slurm_coloc.core.place.steering import steer  # noqa: E402
from slurm_coloc.core.place.steering.snapshot import (  # noqa: E402
    Device,
    Node,
    Rules,
    Running,
    Snapshot,
    Waiting,
)
from slurm_coloc.planning.live import Planner  # noqa: E402
from slurm_coloc.policies import policy  # noqa: E402

#: (nodes, waiting jobs)
ROWS = ((10, 100), (100, 1_000), (300, 3_000), (1_000, 10_000))
NOW_S = 1.8e9
USERS = 50


def snapshot(nodes: int, waiting: int, seed: int = 1) -> Snapshot:
    """A busy cluster."""
    draw = Random(seed)
    found: list[Node] = []
    running: list[Running] = []
    for number in range(nodes):
        devices = []
        for place in range(8):
            whole, used = draw.random() < 0.35, 0
            sizes = [39] if whole else draw.choices((4, 8, 12), k=draw.randint(0, 3))
            for shards in sizes:
                running.append(
                    Running(
                        len(running) + 1,
                        1000 + len(running) % USERS,
                        f"n{number}",
                        (place,),
                        0 if whole else shards,
                        NOW_S - 3600,
                        NOW_S + draw.uniform(60, 90_000),
                        draw.uniform(0.1, 0.9),
                    )
                )
                used += 0 if whole else shards
            free_mib = 40_000 - 1000 * used
            kind = f"a100-{place}"
            devices.append(Device(kind, 39, used, whole, 5.0, free_mib, draw.random()))
        found.append(Node(f"n{number}", tuple(devices), cpus=64, memory_mib=512_000))
    names = tuple(node.name for node in found)
    queue = []
    for number in range(waiting):
        whole = draw.random() < 0.3
        queue.append(
            Waiting(
                10**6 + number,
                str(10**6 + number),
                1000 + number % USERS,
                draw.choice((1, 1, 1, 2, 4, 8)) if whole else 1,
                0 if whole else draw.choice((4, 8, 12, 20)),
                names,
                ours=not whole,
                run_s=draw.uniform(600, 90_000),
                smact=draw.uniform(0.1, 0.9),
                cpus=4,
                memory_mib=16_000,
            )
        )
    rules = Rules(policy="auto", share_with="anyone")
    return Snapshot(NOW_S, rules, tuple(found), tuple(running), tuple(queue))


def main() -> None:
    """Print the table."""
    print("  nodes   GPUs  running  waiting  round s   plan s  planned")
    for nodes, waiting in ROWS:
        seen = snapshot(nodes, waiting)
        began_s = time.process_time()
        steer(seen, policy(seen.rules.policy))
        round_s = time.process_time() - began_s
        began_s = time.process_time()
        plan, why = Planner(policy(seen.rules.policy)).planned(seen)
        plan_s = time.process_time() - began_s
        print(
            f"{nodes:7,} {8 * nodes:6,} {len(seen.running):8,} {waiting:8,} {round_s:8.2f}"
            f" {plan_s:8.2f} {why or len(plan.plan):>8}",
            flush=True,
        )


if __name__ == "__main__":
    main()
