# SPDX-License-Identifier: Apache-2.0
"""Measured trainings (not part of the project) with what their step computes and moves."""

import ast
import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from slurm_coloc.estimate.activity.work import Step, Work, step_of
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.estimate.tokens import with_tokens

TOKENS = 512
#: images that an epoch reads, the validation's with them (its steps have no backward: a part)
EPOCH = {"imagenet": 1_281_167 * 1.04, "cifar100": 50_000 * 1.2}
CIFAR_EPOCHS = 20


@dataclass(frozen=True)
class Row:
    """``group``: kept out together. ``dram`` and ``step_s`` None where they were not measured."""

    name: str
    family: str
    group: str
    step: Step
    batch: int
    optimizer: str
    smact: float
    dram: float | None = None
    step_s: float | None = None


def workloads(path: Path, texts: Mapping[str, str]) -> list[Row]:
    """The thesis' trainings of which there is a text: facts/activity.csv. Runs of 50 epochs repeat
    those of 20."""
    found = []
    with path.open() as lines:
        for line in csv.DictReader(lines):
            model, data, size = line["config"].split("|")
            name = f"{model}-cifar" if data.startswith("cifar") else model
            if name not in texts or "_50e" in line["rad"] or not line["smact_mean"]:
                continue
            summary = parse_summary(texts[name])
            language = not summary.shapes
            if language:
                summary = with_tokens(summary, TOKENS)
            step = step_of(summary)
            assert step is not None, name
            batch = int(size.removeprefix("bs")) // (2 if model == "gpt2_large" else 1)
            step_s = None
            if data in EPOCH:
                epochs = CIFAR_EPOCHS if data.startswith("cifar") else 1
                step_s = float(line["end_to_end_s"]) / epochs / (EPOCH[data] / batch)
            optimizer = "adamw" if language else "adam"
            found.append(
                Row(line["config"], summary.family, name, step, batch, optimizer,
                    float(line["smact_mean"]), float(line["drama_mean"]), step_s)
            )  # fmt: skip
    return found


def mlps(path: Path) -> list[Row]:
    """data/mlp_a100_dev.csv; groups are the four forms of its generator."""
    found = []
    with path.open() as lines:
        for line in csv.DictReader(lines):
            words = dict(
                part.split(":", 1) for part in line["config"].split("_") if part.count(":") == 1
            )
            given = before = int(words["input"])
            works = []
            for kind, units, count in ast.literal_eval(line["layers"]):
                dense = kind == "linear"
                works.append(Work(count if dense else 0, before, units, count, dense))
                before = units
            step = Step(tuple(works), given, int(line["parameters"]))
            found.append(
                Row(line["config"], "mlp", words["arch"], step, int(line["batch_size"]), "adam",
                    float(line["smact"]))
            )  # fmt: skip
    return found
