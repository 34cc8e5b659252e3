# SPDX-License-Identifier: Apache-2.0
"""The shipped networks on what was measured and is not part of the project.

MLPs: all rows of mlp_a100_dev.csv. Their machine's context is CONTEXT_MIB - MLP_CONTEXT_MIB below
that of the labels, so it is added to what was measured. The thesis' configurations: those whose
text lies beside the checkout or among the examples.
"""

import ast
import csv
from collections.abc import Sequence
from pathlib import Path

import torch

from estimator.gpumemnet.measure import score
from slurm_coloc.adapters.onnx import NETS, Onnx
from slurm_coloc.estimate.api import TrainingOptions, estimate
from slurm_coloc.estimate.baselines.nets.classes import CLASSES, CONTEXT_MIB, NETWORKS, file_name
from slurm_coloc.estimate.baselines.nets.features import merged, tuples, vector
from slurm_coloc.estimate.baselines.nets.runner import use
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.estimate.summary import Layer, Summary

MLP_CONTEXT_MIB = 1434  # the text's, see estimator/evaluate/mlp.py
KINDS = {"linear": "Linear", "batch_normalization": "BatchNorm1d", "dropout": "Dropout"}
#: the thesis' configurations of facts/configs18.csv with a text, its optimizer, GPUs of the process
TEXTS = {
    "mobilenet_v2": ("summaries/torchsummary_mobilenet_v2_bs64.txt", "adam", 1),
    "efficientnet_b0": ("summaries/torchsummary_efficientnet_b0_bs32.txt", "adam", 1),
    "bert_base": ("summaries/reprtree_bert_base.txt", "adamw", 1),
    "xlnet_base": ("summaries/reprtree_xlnet_base.txt", "adamw", 1),
}


def summary_of(row: dict[str, str]) -> Summary:
    """What torchinfo would print of a generated MLP."""
    layers = tuple(
        Layer(KINDS.get(kind, kind), 1, outputs=((1, units),), parameters=count)
        for kind, units, count in ast.literal_eval(row["layers"])
    )
    total = int(row["parameters"])
    return Summary("torchinfo", "mlp", total, total, layers)


def measured_mlps(shared: Path, runner: Onnx) -> None:
    with (shared / "data" / "mlp_a100_dev.csv").open() as lines:
        rows = [(summary_of(row), row) for row in csv.DictReader(lines)]
    more = CONTEXT_MIB - MLP_CONTEXT_MIB
    mib = torch.tensor([int(row["max_memory_mib"]) + more for _, row in rows])
    classes = CLASSES["mlp"]
    for network in NETWORKS:
        told = []
        for summary, row in rows:
            batch = int(row["batch_size"])
            inputs: dict[str, Sequence[object]] = {"features": vector(summary, batch, "adam")}
            if network == "transformer":
                inputs["tokens"], inputs["counts"] = merged(tuples(summary, batch))
            chances = runner(file_name(network, "mlp"), inputs)
            told.append(max(range(len(chances)), key=chances.__getitem__))
        print(f"{network:<11} measured MLPs: "
              f"{score(torch.tensor(told), mib, classes.step, classes.count)}")  # fmt: skip


def configurations(shared: Path) -> None:
    with (shared / "facts" / "configs18.csv").open() as lines:
        for row in csv.DictReader(lines):
            if row["model"] not in TEXTS:
                continue
            name, optimizer, gpus = TEXTS[row["model"]]
            summary = parse_summary((shared / name).read_text(encoding="utf-8"))
            options = TrainingOptions(int(row["batch_size"]), optimizer=optimizer, gpus=gpus)
            told = [
                estimate(
                    summary, options, stack=Stack(CONTEXT_MIB), estimator=f"gpumemnet-{network}"
                ).memory_mib
                for network in NETWORKS
            ]
            print(
                f"{row['model']} at {row['batch_size']}: measured {row['measured_mib']} MiB,"
                f" ours {told[0]} and {told[1]}, the thesis' {row['gpumemnet_mib']}"
            )


def main(shared: Path) -> int:
    runner = Onnx(NETS)
    use(runner)
    measured_mlps(shared, runner)
    configurations(shared)
    return 0
