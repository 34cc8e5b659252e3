# SPDX-License-Identifier: Apache-2.0
"""Measured runs of timm models: which rows are taken, and their models' families."""

import csv
import itertools
import os
import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("COLOC_SHARED", ROOT.parent / "shared"))
#: ratios of one increment of memory to the one before, while the batch doubles: 2 is expected
STEADY = (1.4, 2.9)


class Run(NamedTuple):
    """One measured training. ``mib``: its peak by nvidia-smi."""

    model: str
    batch: int
    mib: int


def timm_runs(path: Path = SHARED / "data/timm_a100_dev.csv") -> dict[str, list[Run]]:
    """Runs by model: not capped by the card, growing with the batch, and steadily so."""
    by_model: dict[str, list[Run]] = {}
    with path.open() as lines:
        for row in csv.DictReader(lines):
            if row["capped"] == "0" and row["monotone"] == "1":
                run = Run(row["model"], int(row["batch_size"]), int(row["max_memory_mib"]))
                by_model.setdefault(run.model, []).append(run)
    return {model: sorted(runs) for model, runs in by_model.items() if _steady(sorted(runs))}


def _steady(runs: list[Run]) -> bool:
    steps = [(b.mib - a.mib, b.batch - a.batch) for a, b in itertools.pairwise(runs)]
    if any(more <= 0 for more, _ in steps):
        return False
    ratios = (
        2 * (after / before) / (long / short)
        for (before, short), (after, long) in itertools.pairwise(steps)
    )
    return all(STEADY[0] <= ratio <= STEADY[1] for ratio in ratios)


def family(model: str) -> str:
    """The first word of a name: resnet, vit, swin, ..."""
    found = re.match(r"[a-z]+", model.removeprefix("tf_"))
    return found.group(0) if found else model
