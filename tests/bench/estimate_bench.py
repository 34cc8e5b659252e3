# SPDX-License-Identifier: Apache-2.0
"""Time of reading and estimating a summary, in one process, as colocd does it."""

import statistics
import sys
import time
import tracemalloc
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from slurm_coloc.estimate.api import TrainingOptions, estimate  # noqa: E402
from slurm_coloc.estimate.parsers import parse_summary  # noqa: E402
from slurm_coloc.estimate.replay.stack import Stack  # noqa: E402
from slurm_coloc.flow.estimators.networks import provide  # noqa: E402

EXAMPLES = sorted((ROOT / "etc" / "examples").glob("*.txt"))
OPTIONS = TrainingOptions(batch_size=32)


def once(text: str) -> float:
    """Milliseconds of one parse and estimate."""
    begin = time.perf_counter()
    estimate(parse_summary(text), OPTIONS, stack=Stack(1900, card="a100-40gb"))
    return (time.perf_counter() - begin) * 1000


NETWORKS = ("gpumemnet-mlp", "gpumemnet-transformer")


def networks(text: str, rounds: int) -> str:
    """Milliseconds of an estimate by each network, median, features included, parsing not."""
    summary = parse_summary(text)
    cells = []
    for name in NETWORKS:
        times = []
        for _ in range(rounds):
            answer = estimate(summary, OPTIONS, stack=Stack(1900, card="a100-40gb"), estimator=name)
            times.append(answer.seconds * 1000)
        ran = not answer.reason.startswith("the network did not run")
        cells.append(f"{statistics.median(times):>10.2f}" if ran else f"{'-':>10}")
    return " ".join(cells)


def main(rounds: int = 50) -> int:
    """Print one row a summary: size, rows, median and worst of ``rounds``, memory."""
    provide()
    print(
        f"{'summary':<36} {'KiB':>6} {'median ms':>10} {'worst ms':>9} {'peak KiB':>9}"
        f" {'mlp net ms':>10} {'tuples ms':>10}"
    )
    for path in EXAMPLES:
        text = path.read_text()
        once(text)
        times = [once(text) for _ in range(rounds)]
        tracemalloc.start()
        once(text)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        print(
            f"{path.name:<36} {path.stat().st_size / 1024:>6.1f} {statistics.median(times):>10.2f}"
            f" {max(times):>9.2f} {peak / 1024:>9.0f} {networks(text, rounds)}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
