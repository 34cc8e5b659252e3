# SPDX-License-Identifier: Apache-2.0
"""A summary as numbers: the engineered features, and one tuple a layer.

After the thesis (GPUMemNet): layers by kind, depth, parameters, activations, batch size, their
product, and the activation function as a point on a half circle; for the Transformer a tuple (type,
activations, parameters) a layer. Ours adds activations by kind, the widest tensors, what the
optimizer keeps, and the sum that a formula would take. Sizes are logarithms, so that a network sees
ratios; the sums stand there in GB too, for the edges of classes are equally far apart.
"""

import math
from collections.abc import Sequence
from heapq import nlargest

from slurm_coloc.estimate.kinds import Role, is_attention
from slurm_coloc.estimate.replay.training import OPTIMIZERS
from slurm_coloc.estimate.summary import Layer, Summary

SCHEMA = 1
LENGTH = 96  #: tuples of a model at most: of more, the largest are kept, in their order
LINEAR_GB = 100.0  #: largest of the features that are no logarithms
GROUPS = (
    "conv", "linear", "norm", "act_in", "act_out", "pool", "dropout", "embedding", "attention",
    "other",
)  # fmt: skip
_GROUP = {
    Role.CONV: 0, Role.LINEAR: 1, Role.NORM: 2, Role.ACT_IN: 3, Role.ACT_OUT: 4, Role.MAXPOOL: 5,
    Role.POOL: 5, Role.DROPOUT: 6, Role.EMBEDDING: 7,
}  # fmt: skip
_KEPT = (1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.25, 1.0, 1.0, 1.0)  # of a group's output, for backward
ACTIVATIONS = (
    "elu", "gelu", "hardswish", "identity", "leakyrelu", "mish", "prelu", "relu", "relu6", "selu",
    "silu", "softplus", "tanh",
)  # fmt: skip
NAMES = (
    *(f"layers_{name}" for name in GROUPS),
    *(f"elements_{name}" for name in GROUPS),
    "depth", "batch", "parameters", "trainable", "activations", "activations_batch", "hidden_batch",
    "widest", "widest_conv", "largest_layer", "state", "copies", "fixed_bytes", "kept_bytes",
    "all_bytes", "fixed_gb", "kept_gb", "all_gb", "activation_sin", "activation_cos",
)  # fmt: skip
WIDTH = len(NAMES)
TUPLE = len(GROUPS) + 4


def _group(layer: Layer) -> int:
    if is_attention(layer.kind):
        return 8
    return _GROUP.get(layer.role, 9)


def counted(layer: Layer) -> bool:
    """Whether a row is a layer of its own: containers and rows that only pass on are not. A
    normalisation that holds its activation (timm) has rows below it and counts all the same."""
    if layer.role in (Role.INPUT, Role.ALIAS) and not layer.parameters:
        return False
    return layer.leaf or (layer.role is Role.NORM and layer.parameters > 0)


def vector(summary: Summary, batch: int, optimizer: str) -> list[float]:
    """WIDTH numbers, see NAMES. ``batch``: samples on one GPU."""
    number = [0] * len(GROUPS)
    elements = [0] * len(GROUPS)
    depth = widest = widest_conv = largest = 0
    acts: dict[str, int] = {}
    for layer in summary.layers:
        if not counted(layer):
            continue
        group, made = _group(layer), max(0, layer.output_elements)
        number[group] += layer.count
        elements[group] += made * layer.count
        depth += layer.count if layer.parameters else 0
        widest, largest = max(widest, made), max(largest, layer.parameters)
        if group == 0 and layer.attribute("kernel_elements", 9) > 1:
            widest_conv = max(widest_conv, made + max(0, layer.input_elements))
        if group in (3, 4):
            name = layer.kind.lower()
            acts[name] = acts.get(name, 0) + layer.count
    rule = OPTIMIZERS[optimizer]
    total = sum(elements)
    kept = batch * (sum(k * x for k, x in zip(_KEPT, elements, strict=True)))
    kept += batch * summary.hidden_outputs
    fixed = summary.parameters + summary.trainable * (1 + sum(rule.state))
    sine, cosine = _turn(max(acts, key=lambda name: acts[name]) if acts else "")
    return [
        *(math.log1p(x) for x in number),
        *(math.log1p(x * batch) for x in elements),
        math.log1p(depth),
        math.log1p(batch),
        math.log1p(summary.parameters),
        math.log1p(summary.trainable),
        math.log1p(total),
        math.log1p(total * batch),
        math.log1p(summary.hidden_outputs * batch),
        math.log1p(widest * batch),
        math.log1p(widest_conv * batch),
        math.log1p(largest),
        float(sum(rule.state)),
        float(rule.copies),
        math.log1p(4 * fixed),
        math.log1p(4 * kept),
        math.log1p(4 * (fixed + kept)),
        *(min(4 * x / 1e9, LINEAR_GB) for x in (fixed, kept, fixed + kept)),
        sine,
        cosine,
    ]


def _turn(name: str) -> tuple[float, float]:
    """Sine and cosine of the activation function's place on a half circle; an unknown one is ReLU,
    as in the thesis' code."""
    place = ACTIVATIONS.index(name if name in ACTIVATIONS else "relu")
    turn = math.pi * place / len(ACTIVATIONS)
    return math.sin(turn), math.cos(turn)


def tuples(summary: Summary, batch: int) -> list[list[float]]:
    """At most LENGTH rows of TUPLE numbers: type as one-hot, log of elements of the batch, of
    parameters, of repetitions, and 1."""
    layers: Sequence[Layer] = [layer for layer in summary.layers if counted(layer)]
    if len(layers) > LENGTH:
        sizes = [layer.count * (layer.output_elements + layer.parameters) for layer in layers]
        largest = set(nlargest(LENGTH, range(len(layers)), key=lambda i: (sizes[i], -i)))
        layers = [layer for i, layer in enumerate(layers) if i in largest]
    found = []
    for layer in layers:
        row = [0.0] * TUPLE
        row[_group(layer)] = 1.0
        row[-4] = math.log1p(max(0, layer.output_elements) * batch) / 10
        row[-3] = math.log1p(layer.parameters) / 10
        row[-2] = math.log1p(layer.count) / 10
        row[-1] = 1.0
        found.append(row)
    return found or [[0.0] * (TUPLE - 1) + [1.0]]
