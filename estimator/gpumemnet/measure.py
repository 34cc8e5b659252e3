# SPDX-License-Identifier: Apache-2.0
"""What a class answer is worth: accuracy alone says little where most rows lie in one class."""

from dataclasses import dataclass

import torch
from torch import Tensor

from estimator.gpumemnet.fit import labels


@dataclass(frozen=True)
class Score:
    """``accuracy``, ``macro_f1``: ratios. ``error_mib``, ``over_mib``: mean distance of the class'
    top from the true MiB, and mean of what it reserves too much. ``under``: share of rows above
    their class' top; all three over the rows that are not told to lie in the open class, ``open``
    the share of those that are. ``most``: share of the largest class: a constant's accuracy."""

    rows: int
    accuracy: float
    macro_f1: float
    error_mib: float
    over_mib: float
    under: float
    most: float
    open: float

    def __str__(self) -> str:
        return (
            f"{self.rows:5d} rows  accuracy {100 * self.accuracy:5.1f} %"
            f" (largest class {100 * self.most:4.1f} %)  macro-F1 {self.macro_f1:.3f}"
            f"  mean error of the top {self.error_mib:5.0f} MiB, over {self.over_mib:5.0f} MiB,"
            f" under in {100 * self.under:.1f} %; open class {100 * self.open:.0f} %"
        )


def score(answer: Tensor, mib: Tensor, step: int, classes: int, last: bool = True) -> Score:
    """Of classes of ``step`` MiB. ``last``: the last class is open and has no top."""
    true = labels(mib, step, classes)
    f1 = []
    for k in range(classes):
        hit = int(((answer == k) & (true == k)).sum())
        told, there = int((answer == k).sum()), int((true == k).sum())
        if told + there:
            f1.append(2 * hit / (told + there))
    told_top = answer < classes - last
    off = ((answer + 1) * step - mib)[told_top]
    counts = torch.bincount(true, minlength=classes)
    return Score(
        rows=len(mib),
        accuracy=float((answer == true).float().mean()),
        macro_f1=sum(f1) / len(f1),
        error_mib=float(off.abs().float().mean()),
        over_mib=float(off.clamp_min(0).float().mean()),
        under=float((off < 0).float().mean()),
        most=float(counts.max() / counts.sum()),
        open=1.0 - float(told_top.float().mean()),
    )


def mean(scores: list[Score]) -> Score:
    """The mean over seeds or folds, weighted by rows."""
    total = sum(one.rows for one in scores)

    def of(name: str) -> float:
        return float(sum(getattr(one, name) * one.rows for one in scores) / total)

    names = ("accuracy", "macro_f1", "error_mib", "over_mib", "under", "most", "open")
    return Score(total, *(of(name) for name in names))
