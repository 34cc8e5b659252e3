# SPDX-License-Identifier: Apache-2.0
"""The rows of a summary as a tree, in the order of execution."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

from slurm_coloc.estimate.kinds import Role, is_attention
from slurm_coloc.estimate.summary import Layer, Summary

_ACTS = (Role.ACT_IN, Role.ACT_OUT)


@dataclass(slots=True)
class Node:
    """A row and the rows below it. ``times``: how often it runs each time that its parent runs."""

    layer: Layer
    times: int = 1
    children: list["Node"] = field(default_factory=list)


def tree(summary: Summary) -> list[Node]:
    """The rows at the top. Rows of flat formats (torchsummary, Keras) are all at the top."""
    top: list[Node] = []
    path: list[Node] = []
    flat = summary.format == "torchsummary"
    for layer in _without_heads(summary.layers) if flat else summary.layers:
        if _aside(layer):
            continue
        while path and path[-1].layer.depth >= layer.depth:
            path.pop()
        above = path[-1].layer.count if path else 1
        node = Node(layer, max(1, layer.count // max(1, above)))
        (path[-1].children if path else top).append(node)
        path.append(node)
    if summary.format == "reprtree":
        for node in top:
            _words_first(node)
            _in_order(node)
    return top


def _without_heads(layers: Sequence[Layer]) -> list[Layer]:
    """A flat table without the norms of attention that are switched off: they give back views of
    what the matrix before made, or its product, which the matrix after reads."""
    kept: list[Layer] = []
    for layer in layers:
        past = kept[-1] if kept else None
        third = past is not None and past.output_elements == 3 * layer.output_elements
        if not (third and past and past.role is Role.LINEAR and layer.kind == "Identity"):
            kept.append(layer)
    return kept


def _aside(layer: Layer) -> bool:
    """Angles of positions, which attention multiplies queries and keys with: no value of the path
    through the model goes through them (Llama prints them between its last norm and its head)."""
    return "rotaryemb" in layer.kind.lower() and layer.leaf and not layer.parameters


def _words_first(node: Node) -> None:
    """What embeds words runs before heads that were defined before it (CamemBERT's)."""
    rows = node.children
    first = next((i for i, row in enumerate(rows) if _embeds(row)), 0)
    if first and all(not _embeds(row) for row in rows[:first]):
        node.children = [*rows[first:], *rows[:first]]


def _embeds(node: Node) -> bool:
    return node.layer.role is Role.EMBEDDING or any(_embeds(row) for row in node.children)


def _in_order(node: Node) -> None:
    """print(model) lists modules as they were defined. A feed-forward block often defines its
    matrices before the activation that comes after the first of them (GPT-2, XLNet, Llama)."""
    rows = node.children
    ready = list(takewhile(_before_layers, rows))  # RoBERTa's positions come after its norm
    rows[: len(ready)] = sorted(ready, key=lambda row: row.layer.role is not Role.EMBEDDING)
    wide = [i for i, row in enumerate(rows) if row.layer.role is Role.LINEAR]
    if len(wide) == 2 and is_attention(node.layer.kind):  # Phi-3's last projection comes first
        rows[wide[0]], rows[wide[1]] = sorted((rows[i] for i in wide), key=_width, reverse=True)
    acts = [i for i, row in enumerate(rows) if row.layer.role in _ACTS]
    if len(wide) in (2, 3) and len(acts) == 1 and not (wide[0] < acts[0] < wide[-1]):
        early = acts[0] < wide[0]
        if not early or len(wide) == 2:  # Phi, BART: two matrices with nothing between make one
            moved = rows.pop(acts[0])
            moved.layer = replace(moved.layer, inputs=(), outputs=())  # of what it reads now
            rows.insert(wide[0] + (0 if early else 1), moved)
    for place in range(1, len(rows)):
        if rows[place].layer.attribute("shortcut") and rows[place - 1].layer.role in _ACTS:
            rows.append(rows.pop(place - 1))  # ResNet's last activation comes after the sum
            break
    for row in rows:
        _in_order(row)


def _before_layers(node: Node) -> bool:
    return not node.children and node.layer.role in (Role.EMBEDDING, Role.NORM, Role.DROPOUT)


def _width(node: Node) -> int:
    return node.layer.outputs[0][-1] if node.layer.outputs else 0


def unlisted(nodes: list[Node]) -> list[Node]:
    """A ModuleList has no code of its own: its rows are run by the code around it."""
    if not any(node.layer.kind == "ModuleList" for node in nodes):
        return nodes
    return [
        row for node in nodes for row in (unlisted(node.children) if _is_list(node) else (node,))
    ]


def _is_list(node: Node) -> bool:
    own = node.layer.outputs or node.layer.parameters or node.times > 1
    return node.layer.kind == "ModuleList" and bool(node.children) and not own
