# SPDX-License-Identifier: Apache-2.0
"""Writes slurm_coloc/estimate/nets/ranges.py: the least and the most of each training feature."""

from pathlib import Path

import torch

from slurm_coloc.estimate.nets.classes import CLASSES
from slurm_coloc.estimate.nets.features import NAMES

HEAD = '''# SPDX-License-Identifier: Apache-2.0
"""Least and most of each feature in the training rows, by family; in the order of features.NAMES.

Written by ``python -m estimator.gpumemnet train``.
"""

'''


def write(cache: Path, out: Path) -> None:
    """From the ranges that training left in ``cache``, of the families that are there."""
    lines = [HEAD, "RANGES: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {\n"]
    for family in CLASSES:
        path = cache / f"{family}.ranges"
        if not path.is_file():
            continue
        low, high = torch.load(path)
        assert len(low) == len(NAMES)
        lines.append(f'    "{family}": (\n')
        for side in (low, high):
            lines.append(f"        ({', '.join(f'{float(x):.3f}' for x in side)}),\n")
        lines.append("    ),\n")
    lines.append("}\n")
    (out / "ranges.py").write_text("".join(lines), encoding="utf-8")
