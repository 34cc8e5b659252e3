# SPDX-License-Identifier: Apache-2.0
"""Recordings of timm models as `coloc summarize timm:NAME` writes them. Needs torch and timm."""

import csv
import gc
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

from estimator.evaluate.published import stamp

#: end of a text's name, as those of texts.KINDS
KIND = "recorded"
#: seconds that each recording took, imports not counted
SECONDS = "recorded.csv"


@cache
def prepared() -> None:
    """torchvision whose operators do not load makes timm's import fail."""
    loads = subprocess.run(
        [sys.executable, "-c", "import torchvision"], capture_output=True, check=False
    )
    if loads.returncode:
        from slurm_coloc.summarize.worker import without_operators

        without_operators()


def record(models: list[str], folder: Path) -> None:
    """Files MODEL.recorded in ``folder``; those that are there stay, so it goes on where it was
    stopped. A model that cannot be recorded is named on stderr and left out. One process, one
    thread."""
    prepared()
    stamp(folder)
    missing = [name for name in models if not (folder / f"{name}.{KIND}").exists()]
    if not missing:
        return
    import torch

    from slurm_coloc.summarize.jobs import Wish
    from slurm_coloc.summarize.making import made
    from slurm_coloc.summarize.target import maker

    torch.set_num_threads(1)
    wish = Wish()
    for name in missing:
        try:
            job = maker(f"timm:{name}", wish)
            begin = time.process_time()
            text = made(job, wish).text
        except Exception as why:  # many models; what one of them does must not stop the others
            print(f"{name}: left out: {type(why).__name__}: {str(why)[:100]}", file=sys.stderr)
            continue
        with (folder / SECONDS).open("a", encoding="utf-8") as out:
            csv.writer(out).writerow((name, f"{time.process_time() - begin:.2f}"))
        (folder / f"{name}.{KIND}").write_text(text, encoding="utf-8")
        del job
        gc.collect()  # of one model only, as in a process of its own


def seconds(folder: Path) -> str:
    """How long the recordings of ``folder`` took; empty where that is not known."""
    path = folder / SECONDS
    if not path.exists():
        return ""
    with path.open(encoding="utf-8") as lines:
        took = sorted(float(row[1]) for row in csv.reader(lines) if len(row) > 1)
    if not took:
        return ""
    fast = 100 * sum(one <= 3 for one in took) / len(took)
    return (
        f"{len(took)} recordings without imports: median {took[len(took) // 2]:.1f} s, nine of ten"
        f" within {took[9 * len(took) // 10]:.1f} s, at most {took[-1]:.1f} s;"
        f" {fast:.0f} % within 3 s"
    )
