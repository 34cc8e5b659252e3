# SPDX-License-Identifier: Apache-2.0
"""Writes slurm_coloc/estimate/baselines/nets/ranges.py: the least and the most of each training
feature."""

import textwrap
from collections.abc import Sequence
from pathlib import Path

import torch

from slurm_coloc.estimate.baselines.nets.classes import CLASSES
from slurm_coloc.estimate.baselines.nets.features import NAMES

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
        lines.append(f'    "{family}": (\n{_side(low)}{_side(high)}    ),\n')
    lines.append("}  # fmt: skip\n")
    (out / "ranges.py").write_text("".join(lines), encoding="utf-8")


def _side(values: Sequence[float]) -> str:
    """A tuple of numbers, some a line."""
    numbers = ", ".join(f"{float(value):.3f}" for value in values)
    rows = textwrap.wrap(numbers, 86)
    return "        (\n" + "".join(f"            {row}\n" for row in rows) + "        ),\n"
