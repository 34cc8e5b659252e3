# SPDX-License-Identifier: Apache-2.0
"""Lambda layers (Bello 2021, arXiv 2102.08602; timm/layers/lambda_layer.py): each position gets a
small matrix made of all positions. Where positions are a table, values and table are copied for
each pair of positions, by far the largest tensors of such a model; none of them is in a row."""

from dataclasses import dataclass

from slurm_coloc.estimate.kinds import Role
from slurm_coloc.estimate.rebuild.autograd import Value
from slurm_coloc.estimate.rebuild.leaves import leaf
from slurm_coloc.estimate.rebuild.scope import Scope, Shape, elements
from slurm_coloc.estimate.rebuild.tree import Node


@dataclass(frozen=True, slots=True)
class Lambda:
    """``heads`` queries of ``key`` channels to one key; ``value`` channels of values; ``places``
    in the image."""

    heads: int
    key: int
    value: int
    places: int


def lambda_of(node: Node) -> Lambda | None:
    """From the rows of such a layer; None for others."""
    if node.layer.kind != "LambdaLayer" or len(node.children) < 3:
        return None
    first, *norms = (row.layer for row in node.children[:3])
    if first.role is not Role.CONV or any(row.role is not Role.NORM for row in norms):
        return None
    if any(not row.outputs or len(row.outputs[0]) != 4 for row in (first, *norms)):
        return None
    queries, value = (row.outputs[0][1] for row in norms)
    key = first.outputs[0][1] - queries - value
    if key <= 0 or queries % key:
        return None
    return Lambda(queries // key, key, value, elements(first.outputs[0][2:]))


def run_lambda(scope: Scope, node: Node, made_of: Lambda, x: Value) -> Value:
    """Such a layer on ``x``."""
    heads, key, value, places = made_of.heads, made_of.key, made_of.value, made_of.places
    first, *norms = node.children[:3]
    rest = node.children[3:]
    whole = leaf(scope, first.layer, x)
    queries, values = (leaf(scope, row.layer, whole) for row in norms)
    scope.drop(whole)
    pairs = scope.bytes((places, places))
    saves = [scope.bytes((key, places)), scope.bytes((heads, key, value)), queries.size]
    if rest and rest[0].layer.role is Role.CONV:  # positions by a convolution over the values
        table = rest[0].layer
        given = table.inputs[0] if table.inputs else (1, 1, *x.shape[2:], value)
        near = leaf(scope, table, scope.same(values, given))
        scope.drop(values)
        rest = rest[1:]
    else:
        spread = scope.run([values], (places, places, value), pairs * value)
        near = scope.run(
            [spread],
            (1, places, key, value),
            saves_inputs=[spread],
            saves=[pairs * key],
            weights=scope.weights(node.layer),
        )
        scope.drop(spread)
    each = scope.run([near], (heads, *near.shape), heads * near.size)
    out: Shape = rest[0].layer.inputs[0] if rest and rest[0].layer.inputs else x.shape
    made = scope.run([queries, values, each], out, saves_inputs=[each], saves=saves)
    scope.drop(queries, values, near, each)
    for row in rest:
        made = scope.after(made, leaf(scope, row.layer, made))
    return made
