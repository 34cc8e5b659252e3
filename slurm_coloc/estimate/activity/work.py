# SPDX-License-Identifier: Apache-2.0
"""What one step of a training computes and moves, row by row of its summary.

Multiply-adds follow from shapes and parameters: each weight of a convolution is used once for each
position of the output, each weight of a linear layer once for each token. Attention's two products
have no weights: tokens times tokens times width, twice.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

from slurm_coloc.estimate.kinds import Role, holds_activation, is_attention
from slurm_coloc.estimate.lexing import Shape
from slurm_coloc.estimate.rebuild.given import given
from slurm_coloc.estimate.summary import NOT_KNOWN, Layer, Summary

#: Rows that launch nothing, or nothing of note.
_NOTHING = (Role.ALIAS, Role.INPUT, Role.BLOCK)


class Work(NamedTuple):
    """One row's forward for one sample, and how often the row runs.

    ``products``: multiply-adds. ``read``, ``made``: elements of input and output. ``weights``: its
    parameters. ``dense``: a product of matrices (linear, attention), no convolution.
    """

    products: int
    read: int
    made: int
    weights: int
    dense: bool
    times: int = 1


@dataclass(frozen=True, slots=True)
class Step:
    """All rows; ``given``: elements of one sample's input; ``parameters``: trained ones."""

    works: tuple[Work, ...]
    given: int
    parameters: int


def step_of(summary: Summary) -> Step | None:
    """Of a summary with shapes; None where too little is shown: dimensions that are not known, or
    rows that hold more than a twentieth of the parameters and are not opened."""
    works = []
    sample = before = _given(summary)
    opened = 0
    inner = _innermost(summary.layers)
    for index, layer in enumerate(summary.layers):
        role = layer.role
        if index in inner:
            works += list(_attention(layer))
        if role is Role.BLOCK and layer.parameters:
            own = list(_own(layer))
            works += own
            opened += sum(one.weights * one.times for one in own)
        if role in _NOTHING or not (layer.leaf or holds_activation(layer.kind)):
            continue
        opened += layer.parameters * layer.count
        made, read = _size(layer.outputs), _size(layer.inputs) or before
        if made < 0 or read < 0:
            return None
        if made:
            dense = role is Role.LINEAR
            products = _products(layer, role)
            works.append(Work(products, read, made, layer.parameters, dense, layer.count))
            before = made
    if not works or opened < 0.95 * summary.parameters:
        return None
    return Step(tuple(works), sample, summary.trainable)


def _given(summary: Summary) -> int:
    """Elements of one sample of the batch; 1 for tokens, which nobody has to decode."""
    first = summary.layers[0]
    if first.input_elements > 0:
        return first.input_elements
    if summary.family == "transformer" and any(x.role is Role.EMBEDDING for x in summary.layers):
        return 1
    if first.role is Role.INPUT and first.output_elements > 0:
        return first.output_elements
    # torchsummary shows no inputs either: what is told of torchinfo's first row holds for its own.
    return max(1, prod(given(replace(summary, format="torchinfo"))))


def _size(shapes: tuple[Shape, ...]) -> int:
    """Elements; negative where a dimension is not known."""
    found = 0
    for shape in shapes:
        if min(shape, default=0) < 0:
            return NOT_KNOWN
        found += prod(shape)
    return found


def _products(layer: Layer, role: Role) -> int:
    """Multiply-adds of one sample's forward."""
    if not layer.outputs or not layer.parameters:
        return 0
    shape = layer.outputs[0]
    if role is Role.LINEAR:
        return layer.parameters * prod(shape) // max(1, shape[-1])
    if role is not Role.CONV or len(shape) < 3:
        return 0
    places = shape[2:]
    if "transpose" in layer.kind.lower() and layer.inputs:
        places = layer.inputs[0][2:]
    return layer.parameters * shape[0] * prod(places)


def _own(layer: Layer) -> Iterator[Work]:
    """Parameters of a Transformer's module that no row below it has: matrices over all tokens."""
    if layer.outputs and len(layer.outputs[0]) == 3 and min(layer.outputs[0]) >= 0:
        made = layer.output_elements
        tokens = made // max(1, layer.outputs[0][-1])
        yield Work(layer.parameters * tokens, made, made, layer.parameters, True, layer.count)


def _innermost(layers: tuple[Layer, ...]) -> set[int]:
    """Rows of attention that hold no other: a class of transformers nests three of them."""
    found: set[int] = set()
    open_at: list[int] = []
    for index, layer in enumerate(layers):
        while open_at and layers[open_at[-1]].depth >= layer.depth:
            open_at.pop()
        if not is_attention(layer.kind):
            continue
        found.difference_update(open_at)
        found.add(index)
        open_at.append(index)
    return found


def _attention(layer: Layer) -> Iterator[Work]:
    """Scores and their product with the values, of (n, tokens, width)."""
    if not layer.outputs or len(layer.outputs[0]) != 3 or min(layer.outputs[0]) < 0:
        return
    many, tokens, width = layer.outputs[0]
    made = many * tokens * width
    scores = many * tokens * tokens
    yield Work(scores * width, 2 * made, scores, 0, True, layer.count)
    yield Work(scores * width, scores + made, made, 0, True, layer.count)
