# SPDX-License-Identifier: Apache-2.0
"""What history adds to a decision: the question to the store and the rule, by rows in it.

.venv/bin/python tests/bench/history_bench.py
"""

import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from slurm_coloc.adapters.store import Store  # noqa: E402
from slurm_coloc.config import EstimateConfig  # noqa: E402
from slurm_coloc.core.decide.decision import Estimate  # noqa: E402
from slurm_coloc.core.decide.prepared import Estimated  # noqa: E402
from slurm_coloc.core.decide.request import JobRequest  # noqa: E402
from slurm_coloc.core.records.runs import ModelPeaks  # noqa: E402
from slurm_coloc.flow.submit.history import Learning  # noqa: E402
from slurm_coloc.flow.submit.message import ColocOptions, Submission  # noqa: E402

QUESTIONS = 2000
BATCHES = (8, 16, 32, 64)


def fill(store: Store, rows: int) -> None:
    """``rows`` models, batch sizes and users; 40 of them are of the model that is asked for."""
    with store.transaction():
        for number in range(rows):
            mine = number < 40
            store.peaks.add(
                ModelPeaks(
                    fingerprint="model" if mine else f"model-{number // 8}",
                    uid=1000 if mine else 1000 + number % 50,
                    options="1/1/0/adam/fp32",
                    gpu="a100",
                    batch=number + 1 if mine else BATCHES[number % 4],
                    peak_mib=5000 + number % 3000,
                    at_least_mib=0,
                    oom_mib=0,
                    estimator="text 1",
                    memory_mib=5200 + number % 3000,
                    context_mib=1900,
                    last_s=float(number),
                )
            )


def measure(rows: int) -> tuple[float, float]:
    """Median and 99 % of the milliseconds of one correction."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder))
        fill(store, rows)
        learning = Learning(EstimateConfig(), store)
        estimated = Estimated(
            Estimate("text", 5425, 6052),
            fingerprint="model",
            key="0/adam/fp32",
            estimator="text 1",
            context_mib=1900,
            batch=128,
        )
        request = JobRequest(1000, tres_per_node="gres/gpu:1")
        job = Submission(ColocOptions(), request, gpu_types=("a100",))
        found = []
        for _ in range(QUESTIONS):
            began = time.perf_counter()
            _, note = learning.corrected(job, estimated)
            found.append(1000 * (time.perf_counter() - began))
            assert rows == 0 or (note and note.why)
        store.close()
    found.sort()
    return found[QUESTIONS // 2], found[int(QUESTIONS * 0.99)]


def main() -> None:
    """Print one line for each size."""
    print(f"{'rows in the history':24} {'median ms':>9} {'p99 ms':>8}")
    for rows in (0, 1_000, 100_000):
        median, late = measure(rows)
        print(f"{rows:<24,} {median:9.3f} {late:8.3f}")


if __name__ == "__main__":
    main()
