# SPDX-License-Identifier: Apache-2.0
"""The thesis' 2,437 measured MLPs: all estimators, and the runs played as they were run.

Their peaks are exact to the allocator's 2 MiB, so one constant, the context, is all that is fitted:
to every other row; the figures are of the rows between, and the other way round.

"As run" is what the peaks themselves tell of the script: 4096 samples, so that the last batch of
an epoch is smaller (no other number fits so well: 37 were tried from 800 to 100,000); the old batch
goes before the next comes; gradients go once it is there; Adam; a forward before the first batch,
for a cuBLAS workspace lies below it; and a workspace of 1 MiB for matrix products with a bias
(cuBLASLt). An estimate cannot know the script: the estimators are not told. The text takes the
middle of what three last batches would take.

Where the script is known four rows in five differ from the replay by one and the same number, from
the text more than half of them by the same one: that is the context. A constant that has more rows
near would be the context and what the replay lacks in the others.
"""

import ast
import csv
import math
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from estimator.evaluate.judging import Answer, Case, ask
from slurm_coloc.estimate.api import TrainingOptions, estimate
from slurm_coloc.estimate.estimators.text import step_of
from slurm_coloc.estimate.rebuild.opening import opened
from slurm_coloc.estimate.replay.recording import Recording
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.estimate.replay.training import OPTIMIZERS, Loop
from slurm_coloc.estimate.summary import Layer, Summary

MLP = Path("data/mlp_a100_dev.csv")
KINDS = {"linear": "Linear", "batch_normalization": "BatchNorm1d", "dropout": "Dropout"}
OPTIMIZER = "adam"
#: of the runs' script, see the module
SAMPLES, EPOCHS, LT = 4096, 2, 2**20
NEAR_MIB = 8
AS_RUN = "replay, as run"


class Row(NamedTuple):
    """A measured MLP."""

    name: str
    summary: Summary
    batch: int
    measured_mib: int


def read(path: Path) -> list[Row]:
    """All rows, as the summary that torchinfo would print of them."""
    with path.open() as lines:
        return [_row(row) for row in csv.DictReader(lines)]


def _row(row: dict[str, str]) -> Row:
    found = re.search(r"input:(\d+)", row["config"])
    assert found is not None, row["config"]
    width = int(found[1])
    layers = []
    for kind, units, count in ast.literal_eval(row["layers"]):
        shapes = ((1, width),), ((1, units),)
        layers.append(Layer(KINDS.get(kind, kind), 1, *shapes, parameters=count))
        width = units
    # The column counts a few rows otherwise: what the layers hold is what was trained.
    total = sum(layer.parameters for layer in layers)
    summary = Summary("torchinfo", "mlp", total, total, tuple(layers))
    return Row(row["config"], summary, int(row["batch_size"]), int(row["max_memory_mib"]))


def _step(row: Row, batch: int) -> Recording:
    options = TrainingOptions(batch, optimizer=OPTIMIZER)
    return step_of(row.summary, options, batch, False, opened(row.summary))


def as_run(row: Row, stack: Stack) -> list[int]:
    """Events of the run; see the module."""
    rule, full = OPTIMIZERS[OPTIMIZER], _step(row, row.batch)
    whole, rest = divmod(SAMPLES, row.batch)
    epoch = [full] * min(whole, 4) + ([_step(row, rest)] if rest else [])
    loop = Loop(stack.workspace)
    for size in (*full.parameters, *full.constants):
        loop.new(size)
    loop.new(stack.blas)
    backward = min(full.gradients)
    batch: list[int] = []
    left: list[int] = []
    gradients: list[int] = []
    for number, step in enumerate(epoch * EPOCHS):
        for index in batch:
            loop.free(index)
        batch = [loop.new(size) for size in step.inputs]
        for index in gradients:
            loop.free(index)
        loop.free(loop.new(LT))
        where = loop.play(step.events, -1 if number else backward, stack.blas, step.loss, left)
        gradients = [at for i, at in enumerate(where) if at is not None and i in step.gradients]
        left = [at for i, at in enumerate(where) if at is not None and i not in step.gradients]
        if not number:
            for size in step.parameters:
                for share in rule.state:
                    loop.new(int(size * share))
        for index in [loop.new(size) for size in step.parameters]:
            loop.free(index)
    return loop.events


def usual(differences: Sequence[int]) -> int:
    """Of the differences between what was measured and what the allocator took, the most frequent
    one; of several the least."""
    often = Counter(differences)
    return min(often, key=lambda mib: (-often[mib], mib))


def judged(
    rows: Sequence[Row], estimators: bool = True, first: int = 0
) -> tuple[list[Case], int, int]:
    """Every other row, with the estimators' context and that of the runs (MiB), which are those of
    the rows that are not judged: from ``first`` on. Without ``estimators`` only the text's."""
    bare = Stack(0)
    fitted, kept = rows[first::2], rows[1 - first :: 2]
    runs = usual([row.measured_mib - bare.peak_mib(as_run(row, bare)) for row in fitted])
    told = [_text(row, bare) for row in fitted]
    pairs = zip(fitted, told, strict=True)
    mine = usual([row.measured_mib - int(one.mib) for row, one in pairs if one is not None])
    cases = []
    for row in kept:
        if estimators:
            answers = ask(row.summary, _options(row), Stack(mine))
        else:
            text = _text(row, Stack(mine))
            answers = {"text": text} if text else {}
        mib = Stack(runs).peak_mib(as_run(row, bare))
        cases.append(Case(row.name, row.measured_mib, answers | {AS_RUN: Answer(mib, mib)}))
    return cases, mine, runs


def _text(row: Row, stack: Stack) -> Answer | None:
    answer = estimate(row.summary, _options(row), stack=stack, estimator="text")
    if answer.memory_mib is None or answer.upper_mib is None:
        return None
    return Answer(answer.memory_mib, answer.upper_mib)


def _options(row: Row) -> TrainingOptions:
    return TrainingOptions(row.batch, optimizer=OPTIMIZER)


def classes(cases: Sequence[Case], name: str) -> str:
    """Accuracy in classes of 1 and 2 GB, and what is near."""
    ones = [(case.measured_mib, case.told[name].mib) for case in cases if name in case.told]
    often = Counter(round(a - b) for a, b in ones).most_common(1)[0][1]
    near = 100 * sum(abs(a - b) <= NEAR_MIB for a, b in ones) / len(ones)
    parts = []
    for label, step in (("1 GiB", 1024), ("1 GB", 1000), ("2 GiB", 2048), ("2 GB", 2000)):
        wrong = sum(_class(a, step) != _class(b, step) for a, b in ones)
        parts.append(f"{label} {100 * (1 - wrong / len(ones)):.2f} % ({wrong} wrong)")
    return (
        f"{name:24} classes of {', '.join(parts)}; within {NEAR_MIB} MiB {near:.1f} %,"
        f" one and the same difference in {100 * often / len(ones):.1f} %"
    )


def _class(mib: float, step: int) -> int:
    return math.ceil(mib / step)
