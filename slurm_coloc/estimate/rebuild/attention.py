# SPDX-License-Identifier: Apache-2.0
"""Self-attention: projections, the product that no row shows, the last projection."""

from collections.abc import Callable

from slurm_coloc.estimate.kinds import Role
from slurm_coloc.estimate.rebuild.autograd import Value
from slurm_coloc.estimate.rebuild.scope import Scope, Shape
from slurm_coloc.estimate.rebuild.tree import Node

#: classes that keep more than one tensor of the scores' size
COPIES = {"gpsa": 4}
Run = Callable[[Scope, list[Node], Value, list[Value]], Value]


def attention(scope: Scope, node: Node, x: Value, run: Run) -> Value:
    """Of a container whose rows are q, k, v (or one for all), maybe norms and a softmax, and a
    projection at the end."""
    tape = scope.tape
    tape.hold(x.storage)
    layer = node.layer
    out = layer.outputs[0] if layer.outputs else x.shape
    wide = [i for i, child in enumerate(node.children) if _projects(child)]
    width = x.shape[1] if len(x.shape) > 3 else x.shape[-1]
    own = layer.parameters // max(1, width**2)
    last = wide[-1] if len(wide) > 1 or (wide and own) else len(node.children)
    if len(wide) == 3 and len({node.children[i].layer.parameters for i in wide}) == 1:
        last = wide[-1] + 1  # BERT: q, k and v alone, the projection is another module's
    scores = _scores(scope, node, x)
    parts: list[Value] = []
    if own:  # BEiT, XLNet: functions make q, k and v with the container's own weights
        many = min(own, 3)
        shape = (*x.shape[:-1], many * x.shape[-1])
        weights = scope.weights(layer)
        parts.append(scope.run([x], many * x.size, shape, saves_inputs=[x], weights=weights))
    for index in [i for i in wide if i < last] or ([] if own else [0]):
        given = scope.same(x, x.shape)
        parts.append(run(scope, [node.children[index]], given, [x]))
        tape.drop(given.storage)
    if scores is None:
        made = _fused(scope, parts, x)
    else:
        made = _eager(scope, parts, x, scores, COPIES.get(layer.kind.lower(), 1))
    for part in parts:
        tape.drop(part.storage)
    if own > 3:  # XLNet: the last projection, too
        after = scope.run([made], x.size, x.shape, saves_inputs=[made])
        tape.drop(made.storage)
        made = after
    for child in node.children[last:] if wide else []:
        after = run(scope, [child], made, [made])
        tape.drop(made.storage)
        made = after
    if made.shape != out:
        shaped = scope.reshaped(made, out)
        tape.drop(made.storage)
        made = shaped
    tape.drop(x.storage)
    return made


def _projects(node: Node) -> bool:
    return node.layer.role in (Role.LINEAR, Role.CONV)


def _fused(scope: Scope, parts: list[Value], x: Value) -> Value:
    """One kernel: keeps q, k, v, its result and, of 4 bytes a row and head, a logarithm (64 wide
    heads)."""
    size = x.size
    rows = max(1, size // 64 // scope.low * 4)
    return scope.run(parts, size, x.shape, saves_inputs=parts, saves_output=True, saves=[rows])


def _scores(scope: Scope, node: Node, x: Value) -> Shape | None:
    """Shape of the scores, where a row shows them: softmax and dropout do, a fused kernel does
    not."""
    if "channel" in node.layer.kind.lower():
        return (1, x.shape[-1], 64)
    tokens = x.shape[-2] if len(x.shape) == 3 else 0
    for child in node.children:
        for shape in (*child.layer.inputs, *child.layer.outputs):
            if "softmax" in child.layer.kind.lower() or (
                tokens > 1 and len(shape) > 2 and shape[-2:] == (tokens, tokens)
            ):
                return shape
    if scope.eager and tokens > 1:
        # Head size 64 is the rule from BERT to Llama's 128: the smaller gives more scores.
        return (1, max(1, x.shape[-1] // 64), tokens, tokens)
    return None


def _eager(scope: Scope, parts: list[Value], x: Value, shape: Shape, copies: int) -> Value:
    """Scores are stored: q scaled, the product, its softmax, and the product with the values.
    ``copies``: tensors of the scores' size that are kept."""
    tape = scope.tape
    scores = scope.bytes(shape, scope.high)
    copied = scope.run(parts, x.size, x.shape, saves=[x.size, x.size])
    product = scope.run([copied], scores, shape, saves_inputs=[copied])
    tape.drop(copied.storage)
    softmax = scope.run([product], scores, shape, saves_output=True, saves=[scores] * (copies - 1))
    tape.drop(product.storage)
    if scope.drops:
        dropped = scope.run([softmax], scores, shape, saves=[scope.bytes(shape, 1)])
        tape.drop(softmax.storage)
        softmax = dropped
    made = scope.run([softmax], x.size, x.shape, saves_inputs=[softmax])
    tape.drop(softmax.storage)
    return made
