# SPDX-License-Identifier: Apache-2.0
"""The rows of a summary as a tree, in the order of execution."""

from dataclasses import dataclass, field

from slurm_coloc.estimate.summary import Layer, Summary


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
    for layer in summary.layers:
        while path and path[-1].layer.depth >= layer.depth:
            path.pop()
        above = path[-1].layer.count if path else 1
        node = Node(layer, max(1, layer.count // max(1, above)))
        (path[-1].children if path else top).append(node)
        path.append(node)
    return top
