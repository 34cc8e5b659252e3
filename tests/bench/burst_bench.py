# SPDX-License-Identifier: Apache-2.0
"""A burst of sbatch --coloc by two users on the Docker cluster, where one is up.

    make cluster-up; .venv/bin/python tests/bench/burst_bench.py [--each 500]

Unlike submit_bench.py everything is there as on a site: two users at once, slurmdbd, jobs that
start while others are submitted. That costs what it costs; the burst's test says nothing is lost.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.compose import burst  # noqa: E402
from tests.compose.cluster import Cluster, ClusterError  # noqa: E402


def main(argv: Sequence[str] = ()) -> int:
    """Print the line of figures, or why there are none."""
    parser = argparse.ArgumentParser(description="a burst of sbatch --coloc by two users")
    parser.add_argument("--each", type=int, default=500, help="submissions of each user")
    args = parser.parse_args(argv)
    try:
        cluster = Cluster.find()
    except ClusterError as why:
        print(f"not measured: {why}")
        return 0
    try:
        done = burst.burst(cluster, args.each)
        made = {one.decision for one in burst.queue(cluster)} - {burst.NO_DECISION, ""}
        print(done.told(cluster, burst.hook_ms(cluster, made)))
    finally:
        cluster.clear(timeout=300)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
