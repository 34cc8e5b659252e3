# SPDX-License-Identifier: Apache-2.0
"""Embeddings between rows, and the encoder's output that a decoder's second attention reads.

Embeddings that stand side by side (words, positions, kinds of token) are summed. One that comes
later and is as wide as what was made before it begins a decoder: what was made is the encoder's
output, from which each layer's cross attention makes its keys and values. Any other is a table of
positions beside the path (T5's, MPNet's).
"""

from slurm_coloc.estimate.kinds import Role, is_attention
from slurm_coloc.estimate.rebuild.autograd import Value
from slurm_coloc.estimate.rebuild.leaves import leaf
from slurm_coloc.estimate.rebuild.scope import Scope
from slurm_coloc.estimate.rebuild.tree import Node
from slurm_coloc.estimate.summary import Layer

#: parts of the class names of cross attention; where none has one, see crosses
_CROSS = ("cross", "encdec")


def embeds(node: Node) -> bool:
    """A row that is an embedding."""
    return node.layer.role is Role.EMBEDDING and not node.children


def embedded(scope: Scope, rows: list[Node], place: int, current: Value) -> Value:
    """What the path goes on with after the embedding at ``place``; takes over ``current``'s
    holder."""
    layer = rows[place].layer
    beside = place > 0 and embeds(rows[place - 1])
    if current.maker is None or not (beside or current.maker.reads):
        return scope.after(current, leaf(scope, layer, current))
    if layer.outputs and layer.outputs[0][1:] != current.shape[1:]:
        return tabled(scope, current, layer)
    made = leaf(scope, layer, current)
    if beside:
        total = scope.run([current, made], current.shape, current.size, through=True)
        scope.drop(current, made)
        return total
    scope.memory = current  # its holder stays: the model gives it out, too
    return made


def tabled(scope: Scope, x: Value, layer: Layer) -> Value:
    """``x``, when a table of positions has been added to something beside it."""
    return scope.after(x, scope.run([x], x.shape, x.size, view=True, weights=scope.weights(layer)))


def crosses(scope: Scope, rows: list[Node], place: int) -> bool:
    """Whether attention in the row at ``place`` reads the encoder's output: by its name, or the
    second of the two that a decoder's layer has (BART)."""
    if scope.crosses or scope.memory is None:
        return scope.crosses
    kind = rows[place].layer.kind.lower()
    named = any(part in kind for part in _CROSS)
    return named or (
        is_attention(kind) and any(is_attention(row.layer.kind) for row in rows[:place])
    )
