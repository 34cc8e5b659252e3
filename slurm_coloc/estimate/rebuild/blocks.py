# SPDX-License-Identifier: Apache-2.0
"""Containers: their rows in order, and the functions between the rows, which no summary shows.

What a function did follows from the shapes around it and from what the class is known to do:
attention before its last projection, a gate where a small tensor meets the block's input, the sum
of a residual block.
"""

import re
from dataclasses import replace
from functools import lru_cache
from itertools import chain

from slurm_coloc.estimate.kinds import Role, is_attention
from slurm_coloc.estimate.rebuild.adapter import adapter, run_adapter
from slurm_coloc.estimate.rebuild.again import Recomputed, recomputed
from slurm_coloc.estimate.rebuild.attention import attention
from slurm_coloc.estimate.rebuild.autograd import Value
from slurm_coloc.estimate.rebuild.gathering import Past, branches, gathered, split, stacked, weighed
from slurm_coloc.estimate.rebuild.joint import joint, run_joint
from slurm_coloc.estimate.rebuild.lambdas import lambda_of, run_lambda
from slurm_coloc.estimate.rebuild.leaves import composed, leaf, norm
from slurm_coloc.estimate.rebuild.meeting import gated, joined, multiplied, pooled, pools, widens
from slurm_coloc.estimate.rebuild.products import unlisted_join, unlisted_product
from slurm_coloc.estimate.rebuild.scope import Scope, Shape, elements
from slurm_coloc.estimate.rebuild.tree import Node, unlisted
from slurm_coloc.estimate.rebuild.words import crosses, embedded, embeds
from slurm_coloc.estimate.summary import Layer

_RESIDUAL = re.compile(r"block|bottleneck|residual|layer\Z|encoderlayer|unit\Z", re.IGNORECASE)
#: rows whose result the next row does not read: MetaFormer's scale of the shortcut
ASIDE = frozenset({"Scale"})
#: blocks whose containers all read the block's input and are summed (re-parameterised ones)
PARALLEL = ("mobileone", "repvgg", "reparam", "repconv")
#: blocks whose last ReLU is a function, in no row (torchvision's and timm's Inceptions): it keeps
#: what the block gives out, also where the next row is a concatenation
ENDS_IN_RELU = frozenset({"BasicConv2d"})
#: blocks whose branch a vector of their own scales (timm's and torchvision's ConvNeXt)
SCALED = frozenset({"ConvNeXtBlock", "CNBlock"})
_GATE = re.compile(r"gatingunit|glu", re.IGNORECASE)
_SEQUENCE = ("sequential", "modulelist", "stage", "encoder", "decoder")


def call(scope: Scope, node: Node, x: Value, again: bool = False) -> Value:
    """Run a row and what is below it on ``x``. The result has one holder: the caller. ``again``: it
    is run once more in the backward."""
    if node.times == 1 and not again:
        scope.tape.call()
        return _once(scope, node, x)
    result = None
    for _ in range(node.times):
        scope.tape.call()
        given = result or x
        if again:
            block = Recomputed(scope.tape, given)
            outside, scope.checkpoints = scope.checkpoints, ""
            made = _once(scope, node, given)
            scope.checkpoints = outside
            block.forward_over()
        else:
            made = _once(scope, node, given)
        if result is not None:
            scope.drop(result)
        result = made
    assert result is not None
    return result


def _once(scope: Scope, node: Node, x: Value) -> Value:
    layer = node.layer
    if not node.children and not layer.leaf and layer.outputs:
        # A container of a flat table stands after its rows: it passes on what they made.
        same = layer.outputs[0] == x.shape
        return (scope.same if same else scope.reshaped)(x, layer.outputs[0])
    if not node.children or composed(layer):
        return leaf(scope, layer, x)
    if layer.role is Role.NORM and layer.parameters:
        return _normalised(scope, node, x)
    if adapted := adapter(node):
        return run_adapter(scope, adapted, x)
    if _attends(node):
        return attention(scope, node, x, run)
    if (layer_of := lambda_of(node)) is not None:
        return run_lambda(scope, node, layer_of, x)
    if block := joint(node):
        return run_joint(scope, node, block, x)
    return container(scope, node, x)


def _attends(node: Node) -> bool:
    """An attention block, and not one that holds another; one over channels, too, where its first
    row makes q, k and v and the other projects."""
    own = is_attention(node.layer.kind)
    rows = [x.layer for x in node.children if x.layer.role is Role.LINEAR]
    if not own and (len(rows) != 2 or not rows[0].inputs or not rows[0].outputs):
        return False
    if any(is_attention(child.layer.kind) for child in node.children):
        return False
    if own:
        return True
    if "attent" not in node.layer.kind.lower() and not _drops_scores(node):
        return False
    return rows[0].outputs[0][-1] == 3 * rows[0].inputs[0][-1]


def _drops_scores(node: Node) -> bool:
    """A dropout over heads, in a block over tokens."""
    own = node.layer.outputs
    shapes = (x.layer.outputs for x in node.children if x.layer.role is Role.DROPOUT)
    return bool(own) and len(own[0]) == 3 and any(x and len(x[0]) == 4 for x in shapes)


def container(scope: Scope, node: Node, x: Value) -> Value:
    """The children one after another, then what the end of the block does."""
    scope.tape.hold(x.storage)  # the argument lives as long as the call
    rows, after = node.children, []
    sums = _adds(node, x)
    if sums and rows[-1].layer.role in (Role.ACT_OUT, Role.ACT_IN) and not rows[-1].children:
        rows, after = rows[:-1], rows[-1:]  # ResNet's last ReLU comes after the sum
    past = Past()
    if node.layer.kind.lower().startswith(PARALLEL):
        made = _branches(scope, rows, x)
    else:
        made = run(scope, rows, x, [x], product=_multiplies(node), past=past)
    if _GATE.search(node.layer.kind) and made.size < x.size:
        made = gated(scope, made, x)
    made = _end(scope, node, x, made, past)
    for value in past.left:  # a shortcut that ran first
        if value.shape == made.shape and value.storage != made.storage:
            made = joined(scope, made, scope.same(value, value.shape))
    _let_go(scope, past)
    if sums and made.storage != x.storage and made.shape == x.shape:
        made = joined(scope, made, scope.same(x, x.shape), bool(after))
    if node.layer.kind in ENDS_IN_RELU and rows and rows[-1].layer.role is Role.NORM:
        after = [Node(Layer("ReLU"))]
    if after:
        made = scope.after(made, run(scope, after, made, [made]))
    scope.drop(x)
    return made


def _multiplies(node: Node) -> bool:
    """A feed-forward with a gate (Llama): two matrices read its input, their results are
    multiplied, a third goes back."""
    rows = [x.layer for x in node.children if x.layer.role is Role.LINEAR and x.layer.outputs]
    name = node.layer.kind.lower()
    if len(rows) != 3 or not (name.endswith(("mlp", "feedforward", "glu")) or "gated" in name):
        return False
    return rows[0].outputs == rows[1].outputs != rows[2].outputs


def run(
    scope: Scope,
    nodes: list[Node],
    x: Value,
    frame: list[Value],
    product: bool = False,
    past: Past | None = None,
) -> Value:
    """Run rows in order. ``frame``: values that the calling code still holds. ``product``: two
    results that meet are multiplied, not summed. ``past``: receives what the rows made."""
    scope.tape.hold(x.storage)
    current = x
    shared = past is not None
    past = past or Past()
    rows = unlisted(nodes)
    for place, node in enumerate(rows):
        layer = node.layer
        if layer.role is Role.BLOCK and (stack := stacked(scope, past, layer)):
            scope.drop(current)
            current = _selected(scope, node, stack, past)
            continue
        if layer.role is Role.EMBEDDING and embeds(node):
            current = embedded(scope, rows, place, current)
            past.add(current, x)
            continue
        given = _given(scope, node, current, frame, product, past)
        outside = scope.crosses
        if scope.memory is not None:
            scope.crosses = crosses(scope, rows, place)
        again = bool(scope.checkpoints) and recomputed(rows, place, scope.checkpoints)
        made = call(scope, node, given, again)
        scope.crosses = outside
        if not layer.leaf and not node.children:
            past.passed.append(made)
        scope.tape.drop(given.storage)
        older = given.storage != current.storage
        if layer.kind in ASIDE and made.shape == current.shape:
            scope.drop(made)
        elif older and made.shape == current.shape:
            # It read an older value and made the shape of the last one: a shortcut.
            if product or (place and widens(rows[place - 1], node)):
                current = multiplied(scope, current, made)
            else:
                current = joined(scope, current, made, _acts(rows, place + 1))
            past.add(current, current)
        elif older and pools(current.shape, made.shape):
            current = joined(scope, pooled(scope, current, made.shape), made)
        else:
            past.add(made, x if older else current)
            if older and current.storage != x.storage:
                past.left.append(current)
            else:
                scope.tape.drop(current.storage)
            current = made
    if not shared:
        _let_go(scope, past)
    return current


def _selected(scope: Scope, node: Node, stack: Value, past: Past) -> Value:
    """The sum of a stack's values by the weights that a row makes of the stack."""
    shape = past.made[-1].shape
    weights = call(scope, node, stack)
    made = weighed(scope, stack, weights, shape)
    scope.drop(stack, weights)
    past.add(made, stack)
    return made


def _acts(rows: list[Node], place: int) -> bool:
    """Whether the row at ``place`` is an activation."""
    return place < len(rows) and rows[place].layer.role in (Role.ACT_OUT, Role.ACT_IN)


def _let_go(scope: Scope, past: Past) -> None:
    if past.left:
        scope.drop(*past.left)
        past.left.clear()


def _apart(node: Node) -> bool:
    return bool(node.children) or node.layer.role is Role.NORM


def _branches(scope: Scope, nodes: list[Node], x: Value) -> Value:
    """Rows with rows of their own on ``x`` each, summed; then the others in order."""
    made: Value | None = None
    apart = [node for node in nodes if _apart(node)]
    lists = [node.children if node.layer.kind == "ModuleList" else [node] for node in apart]
    for node in chain.from_iterable(lists):
        for _ in range(node.times):
            own = run(scope, [replace(node, times=1) if node.times > 1 else node], x, [x])
            made = own if made is None else joined(scope, made, own)
    if made is None:
        made = scope.same(x, x.shape)
    rest = [node for node in nodes if not _apart(node)]
    return scope.after(made, run(scope, rest, made, [made]))


def _given(
    scope: Scope, node: Node, current: Value, frame: list[Value], product: bool, past: Past
) -> Value:
    """What a row reads: the last value, an older one of its shape, or what a function made of the
    last one. The caller is a holder of it."""
    shape = node.layer.inputs[0] if node.layer.inputs else None
    if product and node.layer.role is Role.LINEAR and node.layer.outputs[:1] == (current.shape,):
        return scope.same(frame[-1], frame[-1].shape)  # the second matrix beside the gate
    if shape is None and (made := unlisted_product(scope, node.layer, current)):
        return made
    if shape is None and (made := unlisted_join(scope, past, frame, node.layer, current)):
        return made
    if shape is None or shape == current.shape or elements(shape) <= 0:
        return scope.same(current, current.shape)
    if sorted(shape) == sorted(current.shape):  # permuted, and copied where it must be a matrix
        if node.layer.role is Role.LINEAR and len(shape) == 3:
            return scope.run([current], shape, current.size)
        return scope.same(current, shape)
    if elements(shape) == elements(current.shape):  # windows, tokens
        return scope.reshaped(current, shape)
    if part := split(scope, past, current, node.layer, shape):
        return part
    for value in reversed(frame):
        if value.shape == shape and scope.tape.alive(value.storage):
            return scope.same(value, shape)
    return gathered(scope, past, frame, shape) or scope.reshaped(current, shape)


def _normalised(scope: Scope, node: Node, x: Value) -> Value:
    """timm's BatchNormAct2d and its kin: a normalisation, then its children."""
    first = norm(scope, node.layer, x, node.layer.outputs[0] if node.layer.outputs else x.shape)
    return scope.after(first, run(scope, node.children, first, [first]))


def _end(scope: Scope, node: Node, x: Value, made: Value, past: Past) -> Value:
    """What comes after a container's last row, from its own shape."""
    layer = node.layer
    out = layer.outputs[0] if layer.outputs else made.shape
    if made.shape != out:
        if all_of := branches(scope, past, out):
            shaped = all_of
        elif out == x.shape and made.size < x.size:
            shaped = scope.run([x, made], out, x.size, saves_inputs=[x, made])
        else:
            shaped = gathered(scope, past, [x], out) or scope.reshaped(made, out)
        made = scope.after(made, shaped)
    own = layer.parameters or _unprinted(node, out)
    if own and layer.role is Role.BLOCK:
        # A block's own vectors scale its branches (ConvNeXt, BEiT), one each: the last is applied
        # here, the others kept what they scaled before. Elsewhere they are added: a bias, a
        # position embedding.
        whole = dict.fromkeys((1, *out), 1) | {2 * side: 2 for side in out if side > 1}
        scales = whole.get(own, 0) if _adds(node, x) else 0
        kept, more = [made] if scales else [], [made.size] * (scales - 1)
        weights = scope.weights(layer)
        scaled = scope.run([made], out, made.size, saves_inputs=kept, saves=more, weights=weights)
        made = scope.after(made, scaled)
    return made


def _unprinted(node: Node, out: Shape) -> int:
    """Elements of the vector that scales a ConvNeXt block's branch, where print(model) hides it;
    the second version normalises instead."""
    scaled = (
        node.layer.kind in SCALED
        and node.children
        and not any(row.layer.kind.startswith("GlobalResponse") for row in node.children)
    )
    return out[1] if scaled and len(out) == 4 else 0


def _adds(node: Node, x: Value) -> bool:
    """A residual block, from its name; containers that only hold others are none."""
    layer = node.layer
    if layer.outputs and layer.outputs[0] != x.shape:
        return False
    return _residual(layer.kind.lower())


@lru_cache(maxsize=4096)
def _residual(kind: str) -> bool:
    return bool(_RESIDUAL.search(kind)) and not any(part in kind for part in _SEQUENCE)
