# SPDX-License-Identifier: Apache-2.0
"""Networks to ONNX, checked against torch, and the ranges of their training rows."""

from pathlib import Path

import onnx
import onnxruntime
import torch
from torch import nn

from estimator.gpumemnet.fit import Rows
from estimator.gpumemnet.networks import Merged, TupleTransformer
from slurm_coloc.estimate.baselines.nets.features import SCHEMA, TUPLE

OPSET = 17  # LayerNormalization; onnxruntime 1.14 and later
IR = 8


def export(net: nn.Module, rows: Rows, path: Path) -> float:
    """Write ``net``; the largest difference to torch over some rows of one model each."""
    written, names = net, ["features"]
    if isinstance(net, TupleTransformer):
        written, names = Merged(net).eval(), ["tokens", "counts", "features"]
    torch.onnx.export(
        written,
        tuple(_inputs(rows, 0)),
        str(path),
        input_names=names,
        output_names=["chances"],
        dynamic_axes={name: {1: "length"} for name in names[:-1]},
        opset_version=OPSET,
        dynamo=False,
    )
    model = onnx.load(path)
    model.ir_version = IR
    model.doc_string = f"slurm-coloc features {SCHEMA}"
    onnx.checker.check_model(model)
    onnx.save(model, path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    worst = 0.0
    for i in range(0, len(rows), max(1, len(rows) // 50)):
        one = rows.take(torch.tensor([i]))
        with torch.no_grad():
            wanted = net(*([] if one.tokens is None else [one.tokens]), one.features)
        given = {name: x.numpy() for name, x in zip(names, _inputs(rows, i), strict=True)}
        found = session.run(None, given)[0]
        worst = max(worst, float((wanted - torch.tensor(found)).abs().max()))
    return worst


def _inputs(rows: Rows, i: int) -> list[torch.Tensor]:
    """One model, its tokens without padding, each of them once."""
    features = rows.features[i : i + 1]
    if rows.tokens is None:
        return [features]
    length = int(rows.tokens[i, :, -1].sum())
    assert rows.tokens.shape[2] == TUPLE
    tokens, counts = rows.tokens[i, :length].unique(dim=0, return_counts=True)
    return [tokens[None], counts[None].float(), features]
