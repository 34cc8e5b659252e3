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
from functools import lru_cache
from heapq import nlargest
from typing import NamedTuple

from slurm_coloc.estimate.baselines.nets.classes import CLASSES, CONTEXT_MIB
from slurm_coloc.estimate.kinds import Role, is_attention, role
from slurm_coloc.estimate.lexing import Shape, bounded, product
from slurm_coloc.estimate.replay.training import OPTIMIZERS
from slurm_coloc.estimate.summary import Layer, Summary

SCHEMA = 2
LENGTH = 96  #: tuples of a model at most: of more, the largest are kept, in their order
EDGES = 12  #: of classes
#: memory above the context over the sum, in the middle of published models' training rows
SLOPE = {"mlp": 1.1, "cnn": 1.1, "transformer": 1.02}
LINEAR_GB = 100.0  #: largest of the features that are no logarithms
GROUPS = (
    "conv", "linear", "norm", "act_in", "act_out", "pool", "dropout", "embedding", "attention",
    "other",
)  # fmt: skip
_GROUP = {
    Role.CONV: 0, Role.LINEAR: 1, Role.NORM: 2, Role.ACT_IN: 3, Role.ACT_OUT: 4, Role.MAXPOOL: 5,
    Role.POOL: 5, Role.DROPOUT: 6, Role.EMBEDDING: 7,
}  # fmt: skip
PASSES = -1
# Groups whose backward reads the input, or the output; the rest reads neither.
_READS, _MAKES = frozenset((0, 1, 2, 3, 5, 8, 9)), frozenset((4, 8))
# Those whose input comes out of a function that prints no row where its size is another than that
# of the row before: attention's product, a gate.
_FED = frozenset((1, 3, 4, 6))
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
    *(f"edge_{k}" for k in range(1, EDGES + 1)),
)  # fmt: skip
WIDTH = len(NAMES)
TUPLE = len(GROUPS) + 4


class Row(NamedTuple):
    """A layer that counts: its group, elements of one sample's outputs, and its line."""

    group: int
    made: int
    layer: Layer


@lru_cache(maxsize=4096)
def _elements(shapes: tuple[Shape, ...]) -> int:
    """Of one sample; 0 where a dimension is not printed. The same shapes come again and again."""
    parts = [product(shape) for shape in shapes]
    return 0 if None in parts else bounded(sum(part or 0 for part in parts))


def _group(kind: str) -> int:
    """The group of a class name; PASSES for one that only passes on or comes from outside."""
    if is_attention(kind):
        return 8
    found = role(kind)
    return PASSES if found in (Role.INPUT, Role.ALIAS) else _GROUP.get(found, 9)


def counted(summary: Summary) -> list[Row]:
    """The rows that are layers of their own: containers and rows that only pass on are not. A
    normalisation that holds its activation (timm) has rows below it and counts all the same."""
    groups: dict[str, int] = {}
    found = []
    for layer in summary.layers:
        kind = layer.kind
        group = groups.get(kind)
        if group is None:
            group = groups[kind] = _group(kind)
        if group == PASSES:
            if not layer.parameters:
                continue
            group = 9
        if layer.leaf or (group == 2 and layer.parameters):
            found.append(Row(group, _elements(layer.outputs), layer))
    return found


def vector(
    summary: Summary, batch: int, optimizer: str, seen: Sequence[Row] | None = None
) -> list[float]:
    """WIDTH numbers, see NAMES. ``batch``: samples on one GPU. ``seen``: counted(summary), where it
    is at hand. Raises SummaryError where activations leave 63 bits."""
    seen = counted(summary) if seen is None else seen
    number = [0] * len(GROUPS)
    elements = [0] * len(GROUPS)
    depth = widest = widest_conv = largest = 0
    acts: dict[str, int] = {}
    rows: list[tuple[int, int, int]] = []
    for group, made, layer in seen:
        count = layer.count
        read = _elements(layer.inputs) * count if group in _FED else 0
        rows.append((group, made * count, read))
        number[group] += count
        elements[group] += made * count
        if layer.parameters:
            depth += count
            if layer.parameters > largest:
                largest = layer.parameters
        if made > widest:
            widest = made
        if group == 0 and _has_workspace(layer):
            widest_conv = max(widest_conv, made + _elements(layer.inputs))
        if group in (3, 4):
            name = layer.kind.lower()
            acts[name] = acts.get(name, 0) + count
    rule = OPTIMIZERS[optimizer]
    total = sum(elements)
    bounded(total * batch)
    # Beside what is kept: the largest gradients, and a convolution's workspace (replay/stack.py).
    most = widest + 2 * widest_conv
    if summary.family == "transformer":
        most += _unseen(seen)
    kept = batch * (_kept(rows) + summary.hidden_outputs + most)
    fixed = summary.parameters + summary.trainable * (1 + sum(rule.state))
    sine, cosine = _turn(max(acts, key=lambda name: acts[name]) if acts else "")
    return [
        *(math.log1p(x) for x in number),
        *(math.log1p(x * batch) for x in elements),
        *(math.log1p(x) for x in (depth, batch, summary.parameters, summary.trainable, total)),
        *(math.log1p(x * batch) for x in (total, summary.hidden_outputs, widest, widest_conv)),
        math.log1p(largest),
        float(sum(rule.state)),
        float(rule.copies),
        *(math.log1p(4 * x) for x in (fixed, kept, fixed + kept)),
        *(min(4 * x / 1e9, LINEAR_GB) for x in (fixed, kept, fixed + kept)),
        sine,
        cosine,
        *_edges(summary.family, 4 * (fixed + kept)),
    ]


def _edges(family: str, total: float) -> list[float]:
    """How far the sum lies from each class' edge, from -1 (a third below) to 1."""
    family = family if family in CLASSES else "cnn"
    classes = CLASSES[family]
    memory = CONTEXT_MIB + SLOPE[family] * total / 2**20
    return [
        max(-1.0, min(1.0, 3.0 * math.log(memory / (classes.step * k))))
        for k in range(1, EDGES + 1)
    ]


def _has_workspace(layer: Layer) -> bool:
    """Whether cuDNN takes memory for a convolution: not for 1x1 and depthwise ones."""
    kernel = layer.attribute("kernel_elements", 9)
    if kernel <= 1:
        return False
    channels = layer.outputs[0][1] if layer.outputs and len(layer.outputs[0]) > 2 else 1
    return layer.parameters > (kernel + 1) * channels


def _kept(rows: Sequence[tuple[int, int, int]]) -> int:
    """Elements a sample that the backward pass finds again, of rows (group, made, read), taken for
    a chain: an output is kept where the next layer's backward reads its input, or its own its
    output. A dropout keeps a byte an element, a pooling two words. Between a linear layer and one
    that reads another size stands a function: it keeps what the first made, and the second what
    the function made."""
    total = 0
    for i, (group, made, _) in enumerate(rows):
        follower, _, read = rows[i + 1] if i + 1 < len(rows) else (-1, 0, 0)
        function = read not in (0, made)
        if group in _MAKES or follower in _READS or (group == 1 and function):
            total += made
        if function and follower in (1, 3):
            total += read
        if group == 6:
            total += made // 4
        elif group == 5:
            total += 2 * made
    return total


def _unseen(seen: Sequence[Row]) -> int:
    """Elements a sample of what Transformers compute in functions, which print no row: the loss
    over the vocabulary (logits, their logarithms, two gradients), and the softmax over stored
    attention scores, seen by the dropout that follows it where it has no row itself."""
    total = 3 * seen[-1].made * seen[-1].layer.count if seen else 0
    before = (PASSES, 0)
    for group, made, layer in seen:
        own = before not in ((3, made), (4, made))
        if group == 6 and own and layer.outputs and len(layer.outputs[0]) == 4:
            *_, high, wide = layer.outputs[0]
            if high == wide > 1:
                total += 2 * made * layer.count
        before = (group, made)
    return total


def _turn(name: str) -> tuple[float, float]:
    """Sine and cosine of the activation function's place on a half circle; an unknown one is ReLU,
    as in the thesis' code."""
    place = ACTIVATIONS.index(name if name in ACTIVATIONS else "relu")
    turn = math.pi * place / len(ACTIVATIONS)
    return math.sin(turn), math.cos(turn)


def tuples(summary: Summary, batch: int, seen: Sequence[Row] | None = None) -> list[list[float]]:
    """At most LENGTH rows of TUPLE numbers: type as one-hot, log of elements of the batch, of
    parameters, of repetitions, and 1."""
    seen = counted(summary) if seen is None else seen
    if len(seen) > LENGTH:
        sizes = [layer.count * (made + layer.parameters) for _, made, layer in seen]
        largest = sorted(nlargest(LENGTH, range(len(seen)), key=lambda i: (sizes[i], -i)))
        seen = [seen[i] for i in largest]
    found = []
    known: dict[tuple[int, int, int, int], list[float]] = {}
    for group, made, layer in seen:
        key = (group, made, layer.parameters, layer.count)
        row = known.get(key)
        if row is None:
            row = known[key] = [0.0] * TUPLE
            row[group] = 1.0
            row[-4:] = [*(math.log1p(x) / 10 for x in (made * batch, *key[2:])), 1.0]
        found.append(row)
    return found or [[0.0] * (TUPLE - 1) + [1.0]]


def merged(rows: Sequence[list[float]]) -> tuple[list[list[float]], list[float]]:
    """Different rows of ``tuples`` and how often each stands there: what the graphs take, for the
    blocks of a model repeat."""
    found: dict[int, list[float]] = {}
    counts: dict[int, float] = {}
    for row in rows:  # equal rows are one object there
        found[id(row)] = row
        counts[id(row)] = counts.get(id(row), 0.0) + 1.0
    return list(found.values()), list(counts.values())
