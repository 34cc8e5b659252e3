# SPDX-License-Identifier: Apache-2.0
"""All benchmarks, one after another; options go to the submission benchmark.

make bench ARGS='--submissions 300'
"""

import os
import platform
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench import (  # noqa: E402
    agent_bench,
    burst_bench,
    decide_bench,
    estimate_bench,
    history_bench,
    hook_bench,
    link_bench,
    place_bench,
    simulate_bench,
    snapshot_bench,
    store_bench,
    submit_bench,
)


def main() -> int:
    """Run them; the exit code of the submissions."""
    load = os.getloadavg()[0]
    print(f"bench: {time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, {platform.machine()},")
    print(f"bench: Python {platform.python_version()}, load before the start {load:.2f}\n")
    print("Reading and estimating a summary (tests/bench/estimate_bench.py)")
    estimate_bench.main()
    print("\nHistory of measured peaks (tests/bench/history_bench.py)")
    history_bench.main()
    print("\nA long history (tests/bench/store_bench.py)")
    store_bench.main([100_000])
    print("\nProlog and Epilog, interpreter start included (tests/bench/hook_bench.py)")
    hook_bench.main()
    print("\nA node's link to colocd (tests/bench/link_bench.py)")
    link_bench.main()
    print("\nThe agent of a GPU node (tests/bench/agent_bench.py)")
    agent_bench.main()
    print("\nThe simulator, one core (tests/bench/simulate_bench.py)")
    simulate_bench.main()
    print("\nSteered placement on large clusters, one core (tests/bench/place_bench.py)")
    place_bench.main()
    print("\nA submission by the number of nodes (tests/bench/decide_bench.py)")
    decide_bench.main(list(decide_bench.SIZES))
    print("\nThe snapshot of a round of steered placement (tests/bench/snapshot_bench.py)")
    snapshot_bench.main(list(snapshot_bench.SIZES))
    print("\nSubmissions (tests/bench/submit_bench.py)")
    result = submit_bench.main(sys.argv[1:])
    print("\nA burst on the Docker cluster (tests/bench/burst_bench.py)")
    return result or burst_bench.main()


if __name__ == "__main__":
    sys.exit(main())
