# SPDX-License-Identifier: Apache-2.0
"""Rows of published blocks, put as their code runs them where print(model) has them otherwise."""

from dataclasses import replace

from slurm_coloc.estimate.rebuild.doubt import LIST
from slurm_coloc.estimate.rebuild.tree import Node

#: each part of the channels has a convolution and a normalisation of its own (Res2Net)
SPLIT = "bottle2neck"
#: patches made by a network whose head is printed and not run (timm)
_HEADLESS, _HEAD = "hybridembed", "classifierhead"


def as_run(nodes: list[Node], *, headless: bool = False) -> None:
    """Change the rows below ``nodes``. ``headless``: they are below such patches."""
    for node in nodes:
        kind = node.layer.kind.lower()
        if kind.startswith(SPLIT):
            node.children = _in_turn(node.children)
        if headless:
            node.children = [one for one in node.children if one.layer.kind.lower() != _HEAD]
        as_run(node.children, headless=headless or kind == _HEADLESS)


def _in_turn(rows: list[Node]) -> list[Node]:
    """A list of convolutions and one of normalisations become one of pairs."""
    lists = [row for row in rows if row.layer.kind == LIST]
    each = [[one for row in found.children for one in _copies(row)] for found in lists]
    if len(each) != 2 or len(each[0]) != len(each[1]):
        return rows
    pairs = [one for pair in zip(*each, strict=True) for one in pair]
    both = replace(lists[0], children=pairs)
    return [both if row is lists[0] else row for row in rows if row is not lists[1]]


def _copies(row: Node) -> list[Node]:
    """``3 x Conv2d`` as three rows."""
    one = replace(row.layer, count=row.layer.count // row.times)
    return [Node(one) for _ in range(row.times)]
