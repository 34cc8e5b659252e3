# SPDX-License-Identifier: Apache-2.0
"""Self-attention: projections, the product that no row shows, the last projection.

Where a row shows scores (softmax, dropout), or PyTorch has no fused kernel for the shape, they are
stored; else one kernel makes the product and keeps none: see product.
"""

from collections.abc import Callable
from dataclasses import dataclass

from slurm_coloc.estimate.kinds import Role
from slurm_coloc.estimate.rebuild.adapter import adapter, base_of
from slurm_coloc.estimate.rebuild.autograd import Value
from slurm_coloc.estimate.rebuild.product import Scores, Sizes, eager, fused
from slurm_coloc.estimate.rebuild.scope import Scope, Shape, elements
from slurm_coloc.estimate.rebuild.tree import Node
from slurm_coloc.estimate.rebuild.words import embeds, tabled
from slurm_coloc.estimate.summary import Layer

#: gives the scores of positions, from the queries
POSITION = "PosEmbedRel"
#: classes that keep more than one tensor of the scores' size
COPIES = {"gpsa": 4}
#: Hiera's class
UNITS = "MaskUnitAttention"
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
    scope.tape.hold(x.storage)
    layer = node.layer
    rows = _rows(node, x)
    parts = _parts(scope, node, rows, x, run)
    sizes = _sizes(scope, node, rows, parts, x)
    scores = _scores(scope, node, rows, x)
    if scope.caches:
        parts = _cached(scope, layer, parts, x)
    if scores is None:
        made = fused(scope, parts, sizes, copied=layer.kind == UNITS)
    else:
        made = eager(scope, parts, sizes, scores)
    scope.drop(*parts)
    if rows.own > 3:  # XLNet: the last projection, too
        made = scope.after(made, scope.run([made], x.shape, x.size, saves_inputs=[made]))
        for more in (2 * x.size, x.size, x.size):  # keys of positions, queries with both biases
            made = scope.after(made, scope.run([made], made.shape, made.size, saves=[more]))
    for child in rows.rest:
        if embeds(child):
            made = tabled(scope, made, child.layer)
        else:
            made = scope.after(made, run(scope, [child], made, [made]))
    out = layer.outputs[0] if layer.outputs else x.shape
    if made.shape != out:
        made = scope.after(made, scope.reshaped(made, out))
    scope.drop(x)
    return made


def _rows(node: Node, x: Value) -> _Rows:
    children = node.children
    wide = [i for i, child in enumerate(children) if _projects(child) and not _mixes(child, x)]
    width = x.shape[1] if len(x.shape) > 3 and not _tokens_last(node) else x.shape[-1]
    own = node.layer.parameters // max(1, width**2)
    if not wide:
        return _Rows((), (), (), own)
    last = wide[-1] if len(wide) > 1 or own else len(children)
    alike = len({base_of(children[i]).parameters for i in wide}) == 1
    if (len(wide) == 3 and alike) or _width(children[wide[-1]]) != _width(node):
        # BERT's projection is another module's; halo and bottleneck attention have none.
        last = wide[-1] + 1
    norms = (x for x in children[:last] if x.layer.role is Role.NORM and not x.children)
    rest = [child for child in children[last:] if child.layer.kind != POSITION]
    drops = [child for child in rest if child.layer.role is Role.DROPOUT]
    # The first of two is that of the scores, which the product takes in; so is the only one where
    # the projection is another module's.
    if drops and (len(drops) > 1 or last == wide[-1] + 1):
        rest.remove(drops[0])
    return _Rows(tuple(children[i] for i in wide if i < last), tuple(norms), tuple(rest), own)


def _mixes(node: Node, x: Value) -> bool:
    """A matrix over the heads of scores (talking heads), not over channels."""
    layer = node.layer
    if layer.role is not Role.LINEAR or len(x.shape) != 3 or not layer.inputs:
        return False
    shape = layer.inputs[0]
    return len(shape) == 4 and shape[1:3] == (x.shape[1], x.shape[1]) and shape in layer.outputs


def _parts(scope: Scope, node: Node, rows: _Rows, x: Value, run: Run) -> list[Value]:
    """q, k and v, or what holds them, with a holder each."""
    parts: list[Value] = []
    if rows.own:
        many = min(rows.own, 3)
        shape = (*x.shape[:-1], many * x.shape[-1])
        weights = scope.weights(node.layer)
        parts.append(scope.run([x], shape, many * x.size, saves_inputs=[x], weights=weights))
    read = _read(scope, rows.first, x)
    parts += [run(scope, [row], one, [one]) for row, one in zip(rows.first, read, strict=True)]
    if not parts:
        parts.append(scope.same(x, x.shape))
    source = parts[0]
    for row in rows.norms:
        weights = scope.weights(row.layer)
        parts.append(scope.run([source], x.shape, x.size, saves_inputs=[source], weights=weights))
    if node.layer.kind.lower().startswith(ROTATED) and not scope.caches:
        parts += [scope.run([source], x.shape, x.size) for _ in range(2)]
    return parts


def _read(scope: Scope, rows: tuple[Node, ...], x: Value) -> list[Value]:
    """What each of the first matrices reads: of cross attention keys and values, the last two or
    one for both, the encoder's output."""
    memory = scope.memory if scope.crosses else None
    if memory is None:
        return [x] * len(rows)
    return [x if place == 0 and len(rows) > 1 else memory for place in range(len(rows))]


def _cached(scope: Scope, layer: Layer, parts: list[Value], x: Value) -> list[Value]:
    """Keys and values stay with what the model gives out. Today's transformers copies them into the
    cache and reads them there; the classes of old, which had the kernel in their names, did not."""
    name = layer.kind.lower()
    if "sdpa" in name or "flash" in name:
        for part in parts[1:3] or parts:
            scope.tape.hold(part.storage)
        return parts
    if len(parts) < 3:  # one matrix for all
        both = parts[0].size - x.size
        made = scope.run(parts[:1], x.shape, max(1, both))
        scope.tape.hold(made.storage)
        if not scope.rotary:
            return [*parts, made]
        # Queries and keys are turned, and the cache has the values: nobody needs the matrix' own.
        turned = scope.run(parts[:1], x.shape, x.size)
        return [scope.after(parts[0], turned), made]
    for place in (1, 2):
        made = scope.run([parts[place]], parts[place].shape, parts[place].size)
        scope.tape.hold(made.storage)
        parts[place] = scope.after(parts[place], made)
        if made.size < parts[0].size:  # heads share them: they are repeated for the kernel
            wide = scope.run([made], parts[0].shape, parts[0].size)
            parts[place] = scope.after(made, wide)
    return parts


def _projects(node: Node) -> bool:
    """A matrix, or a container around one (LeViT's linear and norm)."""
    if node.children:
        inside = sum(_projects(child) for child in node.children)
        return inside == 1 or adapter(node) is not None
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


def _sizes(scope: Scope, node: Node, rows: _Rows, parts: list[Value], x: Value) -> Sizes:
    """Queries, keys and values by what the last projection reads, which is as wide as the values;
    what is left of the first matrices is shared by queries and keys."""
    read = next((row.layer.inputs[0] for row in rows.rest[:1] if row.layer.inputs), x.shape)
    made = scope.bytes(read)
    for child in node.children:
        if child.layer.kind == POSITION and child.layer.inputs:
            return _windows(scope, child.layer, read)
    first = parts[: max(1, bool(rows.own) + len(rows.first))]
    first = [part for part in first if len(part.shape) == len(first[0].shape)]  # not positions
    if len(first) > 2:
        return Sizes(first[0].size, first[1].size, first[2].size, made, read)
    last = _tokens_last(node)
    held = max(first, key=lambda part: _channels(part.shape, last))
    value = held.size * _channels(read, last) // max(1, _channels(held.shape, last))
    left = max(0, held.size - value)
    if len(first) == 2:
        query = first[0] if held is first[1] else first[1]
        return Sizes(query.size, left or value, value, made, read)
    # Queries may be fewer than what they are made of (Hiera pools them).
    return Sizes(left // 2 * made // max(1, value) or made, left // 2 or made, value, made, read)


def _windows(scope: Scope, positions: Layer, read: Shape) -> Sizes:
    """Windows may overlap (HaloNet): keys and values are copied for each, as many as the scores of
    a query."""
    *lead, queries, keys = positions.outputs[0]
    query = positions.inputs[0]
    key = scope.bytes((*lead, keys, query[-1]))
    made = scope.bytes(read)
    return Sizes(scope.bytes(query), key, made * keys // max(1, queries), made, read)


def _channels(shape: Shape, last: bool) -> int:
    return shape[-1] if last or len(shape) < 4 else shape[1]


def _scores(scope: Scope, node: Node, rows: _Rows, x: Value) -> Scores | None:
    """What is known of the scores, where they are stored."""
    kind = node.layer.kind.lower()
    if "channel" in kind:
        return Scores((1, x.shape[-1], 64))
    # Cosine attention (Swin 2) divides q and k by their lengths and scales their product.
    cosine = (rows.own == 3 and "window" in kind) or kind == "windowmultiheadattention"
    tokens = x.shape[-2] if len(x.shape) == 3 else 0
    mixed = sum(_mixes(child, x) for child in node.children)
    mixed += mixed > 0  # what each reads is copied, and what the last one makes
    for child in node.children:
        if child.layer.kind == POSITION:
            return Scores(child.layer.outputs[0], bias=2)
        name = child.layer.kind.lower()
        for shape in (*child.layer.inputs, *child.layer.outputs):
            # A matrix may make tokens as wide as there are many: they are square, too.
            wide = child.layer.role is Role.LINEAR and len(shape) == len(x.shape)
            square = tokens > 1 and len(shape) > 2 and shape[-2:] == (tokens, tokens)
            square = square and not (wide or scope.printed) and shape[-2:] != x.shape[-2:]
            dropped = child.layer.role is Role.DROPOUT and len(shape) == 4 > len(x.shape)
            if "softmax" in name or square or dropped:
                # As many parameters as heads: a temperature, which queries and keys of length one
                # are multiplied with.
                heat = kind not in COPIES and 0 < node.layer.parameters == shape[1]
                cosine = cosine or heat
                return Scores(shape, COPIES.get(kind, 1) + cosine + mixed, cosine)
    if head := _head(node, x):
        heads, inside, _ = head
        bias = 1 if node.layer.parameters else None
        return Scores((heads, inside, inside), bias=bias, whole=True)
    if len(x.shape) == 4 and _tokens_last(node) and node.layer.kind == "Attention":
        if x.shape[1] == x.shape[2]:  # image windows (SAM): the positions' bias is as the scores
            inside = x.shape[1] * x.shape[2]
            return Scores((x.shape[0], max(1, x.shape[-1] // 64), inside, inside), bias=1)
        # Blocks of tokens (NesT): five dimensions. Its heads are 32 wide.
        heads = max(1, x.shape[-1] // 32)
        return Scores((x.shape[0] * x.shape[1], heads, x.shape[2], x.shape[2]))
    if node.layer.kind == UNITS:
        return _units(scope, node, x)
    if first := _normed(node):
        return _levit(node, _width(first), x)
    if scope.eager and tokens > 1:
        # Head size 64 is the rule from BERT to Llama's 128: the smaller gives more scores.
        return Scores((1, max(1, x.shape[-1] // scope.head), tokens, tokens))
    return None


def _head(node: Node, x: Value) -> tuple[int, ...] | None:
    """Queries whose heads are put beside the batch: (heads, tokens, width). Three dimensions, for
    which there is no fused kernel."""
    for child in node.children:
        shapes = child.layer.inputs
        if child.layer.role in (Role.ALIAS, Role.NORM) and shapes and len(shapes[0]) == 3:
            shape = shapes[0]
            if shape[0] > x.shape[0] and elements(shape) == elements(x.shape):
                return shape
    return None


def _units(scope: Scope, node: Node, x: Value) -> Scores | None:
    """Hiera: units of 32 pixels a side in the first two stages, in a fifth dimension; the rest
    sees all tokens in four. Queries may be pooled. Heads are 56 to 96 wide."""
    tokens, out = x.shape[-2], node.layer.outputs[0] if node.layer.outputs else x.shape
    unit = tokens * 32 * 32 // max(1, scope.pixels)
    if unit < 16:
        return None
    queries = unit * out[-2] // tokens
    heads = max(1, round(out[-1] / 72))
    return Scores((tokens // unit, heads, queries, unit), held=queries < unit)


def _levit(node: Node, width: int, x: Value) -> Scores:
    """A table of each head's positions tells the heads; queries may be fewer than keys. Without
    it: keys 32 wide, values twice as much."""
    spread = len(x.shape) > 3
    keys = elements(x.shape) // x.shape[1 if spread else -1] // x.shape[0]
    out = node.layer.outputs[0] if node.layer.outputs else x.shape
    queries = elements(out) // out[1 if spread else -1] // x.shape[0]
    heads, odd = divmod(node.layer.parameters, keys)
    return Scores((1, heads if heads and not odd else max(1, width // 128), queries, keys))
