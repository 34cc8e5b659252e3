# SPDX-License-Identifier: Apache-2.0
"""Attention among convolutions, and in Transformers whose layers differ in size: which of it is
told by its rows."""

from collections.abc import Mapping

from slurm_coloc.estimate.kinds import is_attention
from slurm_coloc.estimate.pixels.frame import At
from slurm_coloc.estimate.pixels.inside import Inside
from slurm_coloc.estimate.rebuild.tree import Node

#: classes (timm's) whose figure is that of their full table, or above it; of others it is in no row
#: whether they store their scores
SHOWN = frozenset(
    {
        "attention", "attention2d", "attentioncl", "attentionrope",
        "evaattention", "relposattention", "windowattention", "windowmultiheadattention",
    }
)  # fmt: skip
#: channels of queries, keys and values over those that an attention reads
MOST_OF_READ = 8
#: values that tell a pixel's place
_POSITIONS = 3
#: with more pixels the scores of what everybody calls Attention outweigh all else, if they stay
_MOST_PIXELS = 1024
#: that an attention weighs: with fewer, a head that is not run stands before it (timm's hybrids)
_LEAST_PIXELS = 4


def attended(node: Node, x: At, inside: Mapping[int, Inside]) -> list[Node]:
    """The rows below an attention that make queries, keys and values, and that put what is weighed
    together; none where what it does is in no row. A table of positions is small, and none of
    them."""
    kind = node.layer.kind.lower()
    told = [one for one in node.children if inside[id(one)].matters]
    rows = [one for one in told if inside[id(one)].first > _POSITIONS]
    if kind not in SHOWN or len(rows) not in (2, 3, 4) or x.pixels < _LEAST_PIXELS:
        return []
    if kind == "attention" and x.pixels > _MOST_PIXELS:
        return []
    if "window" in kind and told != rows:
        return []  # its scores are stored, and how many is in no row (Swin 2)
    return rows


def encloses(node: Node) -> bool:
    """Whether a row of an attention's name is the block around one (FastViT, MaxViT)."""
    return any(is_attention(child.layer.kind) and child.children for child in node.children)
