# SPDX-License-Identifier: Apache-2.0
"""Self-attention: projections, the product that no row shows, the last projection.

Where a row shows scores (softmax, dropout), or PyTorch has no fused kernel for the shape, they are
stored; else one kernel makes the product and keeps none (scaled_dot_product_attention).
"""

from collections.abc import Callable
from dataclasses import dataclass

from slurm_coloc.estimate.kinds import Role
from slurm_coloc.estimate.rebuild.autograd import Value
from slurm_coloc.estimate.rebuild.scope import Scope, Shape, elements
from slurm_coloc.estimate.rebuild.tree import Node

#: gives the scores of positions, from the queries
POSITION = "PosEmbedRel"
#: classes that keep more than one tensor of the scores' size
COPIES = {"gpsa": 4, "windowmultiheadattention": 2}
#: classes that turn queries and keys by their position: a new tensor each
ROTATED = ("evaattention", "attentionrope", "rotary", "llamaattention", "qwen", "mistral")
Run = Callable[[Scope, list[Node], Value, list[Value]], Value]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of an attention block: those that make q, k and v, norms of these, the rest. ``own``:
    matrices that are parameters of the block itself (BEiT has three, XLNet five)."""

    first: tuple[Node, ...]
    norms: tuple[Node, ...]
    rest: tuple[Node, ...]
    own: int


def attention(scope: Scope, node: Node, x: Value, run: Run) -> Value:
    """Of a container whose rows are q, k, v (or one for all), maybe norms and a softmax, and a
    projection at the end."""
    tape = scope.tape
    tape.hold(x.storage)
    layer = node.layer
    rows = _rows(node, x)
    parts = _parts(scope, node, rows, x, run)
    scores = _scores(scope, node, x)
    # Cosine attention (Swin 2) divides q and k by their lengths, for which both are kept.
    kind = layer.kind.lower()
    cosine = (rows.own == 3 and "window" in kind) or kind == "windowmultiheadattention"
    made = (
        _fused(scope, parts, x)
        if scores is None
        else _eager(scope, parts, x, scores, COPIES.get(kind, 1), cosine)
    )
    for part in parts:
        tape.drop(part.storage)
    if rows.own > 3:  # XLNet: the last projection, too
        made = _after(scope, made, scope.run([made], x.size, x.shape, saves_inputs=[made]))
        for more in (2 * x.size, x.size, x.size):  # keys of positions, queries with both biases
            made = _after(scope, made, scope.run([made], made.size, made.shape, saves=[more]))
    for child in rows.rest:
        made = _after(scope, made, run(scope, [child], made, [made]))
    out = layer.outputs[0] if layer.outputs else x.shape
    if made.shape != out:
        made = _after(scope, made, scope.reshaped(made, out))
    tape.drop(x.storage)
    return made


def _after(scope: Scope, before: Value, made: Value) -> Value:
    scope.tape.drop(before.storage)
    return made


def _rows(node: Node, x: Value) -> _Rows:
    children = node.children
    wide = [i for i, child in enumerate(children) if _projects(child)]
    width = x.shape[1] if len(x.shape) > 3 and not _tokens_last(node) else x.shape[-1]
    own = node.layer.parameters // max(1, width**2)
    if not wide:
        return _Rows((), (), (), own)
    last = wide[-1] if len(wide) > 1 or own else len(children)
    alike = len({children[i].layer.parameters for i in wide}) == 1
    if (len(wide) == 3 and alike) or _width(children[wide[-1]]) != _width(node):
        # BERT's projection is another module's; halo and bottleneck attention have none.
        last = wide[-1] + 1
    norms = (x for x in children[:last] if x.layer.role is Role.NORM and not x.children)
    rest = (child for child in children[last:] if child.layer.kind != POSITION)
    return _Rows(tuple(children[i] for i in wide if i < last), tuple(norms), tuple(rest), own)


def _parts(scope: Scope, node: Node, rows: _Rows, x: Value, run: Run) -> list[Value]:
    """q, k and v, or what holds them, with a holder each."""
    parts: list[Value] = []
    if rows.own:
        many = min(rows.own, 3)
        shape = (*x.shape[:-1], many * x.shape[-1])
        weights = scope.weights(node.layer)
        parts.append(scope.run([x], many * x.size, shape, saves_inputs=[x], weights=weights))
    parts += [run(scope, [row], x, [x]) for row in rows.first]
    if not parts:
        parts.append(scope.same(x, x.shape))
    source = parts[0]
    for row in rows.norms:
        weights = scope.weights(row.layer)
        parts.append(scope.run([source], x.size, x.shape, saves_inputs=[source], weights=weights))
    if node.layer.kind.lower().startswith(ROTATED):
        parts += [scope.run([source], x.size, x.shape) for _ in range(2)]
    return parts


def _projects(node: Node) -> bool:
    """A matrix, or a container around one (LeViT's linear and norm)."""
    if node.children:
        return sum(_projects(child) for child in node.children) == 1
    return node.layer.role in (Role.LINEAR, Role.CONV)


def _tokens_last(node: Node) -> bool:
    """The first matrix is a linear one: channels are the last dimension."""
    return any(child.layer.role is Role.LINEAR for child in node.children)


def _normed(node: Node) -> Node | None:
    """The first row, where it is a matrix with a normalisation after it."""
    first = node.children[0] if node.children else node
    rows = [child.layer.role for child in first.children]
    return first if rows in ([Role.LINEAR, Role.NORM], [Role.CONV, Role.NORM]) else None


def _width(node: Node) -> int:
    """Channels that a row gives out."""
    outputs = node.layer.outputs
    if not outputs:
        return 0
    flat = len(outputs[0]) <= 3 or node.layer.role is Role.LINEAR or _tokens_last(node)
    return outputs[0][-1] if flat else outputs[0][1]


def _fused(scope: Scope, parts: list[Value], x: Value) -> Value:
    """One kernel: keeps q, k, v, its result and, of 4 bytes a row and head, a logarithm (64 wide
    heads)."""
    size = x.size
    rows = max(1, size // 64 // scope.low * 4)
    return scope.run(parts, size, x.shape, saves_inputs=parts, saves_output=True, saves=[rows])


def _scores(scope: Scope, node: Node, x: Value) -> Shape | None:
    """Shape of the scores, where they are stored."""
    if "channel" in node.layer.kind.lower():
        return (1, x.shape[-1], 64)
    tokens = x.shape[-2] if len(x.shape) == 3 else 0
    for child in node.children:
        if child.layer.kind == POSITION:
            return child.layer.outputs[0]
        name = child.layer.kind.lower()
        for shape in (*child.layer.inputs, *child.layer.outputs):
            square = tokens > 1 and len(shape) > 2 and shape[-2:] == (tokens, tokens)
            if "softmax" in name or square:
                return shape
    if len(x.shape) == 4 and _tokens_last(node) and node.layer.kind == "Attention":
        if x.shape[1] == x.shape[2]:  # image windows (SAM): the positions' bias is as the scores
            inside = x.shape[1] * x.shape[2]
            return (x.shape[0], max(1, x.shape[-1] // 64), inside, inside)
        # Blocks of tokens (NesT): the fused kernels take four dimensions, these are five. Its heads
        # are 32 wide.
        return (x.shape[0] * x.shape[1], max(1, x.shape[-1] // 32), x.shape[2], x.shape[2])
    if node.layer.kind == "MaskUnitAttention":  # Hiera: five dimensions, heads 96 wide, units of 64
        unit = 64 if tokens > 196 else tokens
        return (tokens // unit, max(1, x.shape[-1] // 96), unit, unit)
    if first := _normed(node):  # LeViT: keys 32 wide, values twice as much
        inside = elements(x.shape) // x.shape[1 if len(x.shape) > 3 else -1] // x.shape[0]
        return (1, max(1, _width(first) // 128), inside, inside)
    if scope.eager and tokens > 1:
        # Head size 64 is the rule from BERT to Llama's 128: the smaller gives more scores.
        return (1, max(1, x.shape[-1] // 64), tokens, tokens)
    return None


def _eager(
    scope: Scope, parts: list[Value], x: Value, shape: Shape, copies: int, cosine: bool
) -> Value:
    """Scores are stored: q scaled, the product, its softmax, and the product with the values."""
    tape = scope.tape
    scores = scope.bytes(shape, scope.high)
    more = [x.size] * (4 if cosine else 2)
    copied = scope.run(parts, x.size, x.shape, saves=more, saves_inputs=parts if cosine else [])
    product = scope.run([copied], scores, shape, saves_inputs=[copied])
    tape.drop(copied.storage)
    made = scope.run(
        [product], scores, shape, saves_output=True, saves=[scores] * (copies - 1 + cosine)
    )
    tape.drop(product.storage)
    if scope.drops:
        made = _after(scope, made, scope.run([made], scores, shape, saves=[scope.bytes(shape, 1)]))
    return _after(scope, made, scope.run([made], x.size, x.shape, saves_inputs=[made]))
