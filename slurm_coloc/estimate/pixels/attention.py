# SPDX-License-Identifier: Apache-2.0
"""Attention among convolutions, and in Transformers whose layers differ in size: which of it is
told by its rows, and what they read."""

from dataclasses import replace
from typing import Protocol

from slurm_coloc.estimate.kinds import Role, is_attention
from slurm_coloc.estimate.pixels.frame import At, unclear, untold
from slurm_coloc.estimate.pixels.inside import Inside
from slurm_coloc.estimate.pixels.modules import halved, leaf
from slurm_coloc.estimate.rebuild.tree import Node, unlisted

#: classes (timm's) whose figure is that of their full table, or above it; of others it is in no row
#: whether they store their scores
SHOWN = frozenset(
    {
        "attention", "attention2d", "attentioncl", "attentiondownsample", "attentionrope",
        "channelattention", "channelattentionv2", "evaattention", "linearselfattention",
        "maskunitattention", "multiscaleattention", "relposattention", "windowattention",
        "windowmultiheadattention",
    }
)  # fmt: skip
#: of these: what they weigh are fewer pixels than they read (LeViT, Hiera)
_POOLS = frozenset({"attentiondownsample", "maskunitattention", "multiscaleattention"})
#: an input's side over that of the largest window that was published (Swin 2; its first form)
_WINDOWS = {"windowattention": 16, "windowmultiheadattention": 32}
#: channels of queries, keys and values over those that an attention reads
_MOST_OF_READ = 8
#: with more pixels the scores of what everybody calls Attention outweigh all else, if they stay
_MOST_PIXELS = 1024
#: that an attention weighs: with fewer, a head that is not run stands before it
_LEAST_PIXELS = 4
_SLIDES = (Role.CONV, Role.POOL)


class Walk(Protocol):
    """What runs rows. ``side``: of the input; ``tokens``: see frame.of_tokens."""

    inside: dict[int, Inside]
    side: int
    tokens: bool

    def row(self, node: Node, x: At) -> At:
        """What a row makes of ``x``."""

    def skip(self, node: Node) -> None:
        """Pass over a row."""


def attends(node: Node) -> bool:
    """Whether a row is an attention, and not the block around one (FastViT, MaxViT)."""
    if node.layer.kind.lower().startswith("channelattention"):  # DaViT's; CBAM's is a gate
        return [one.layer.role for one in node.children] == [Role.LINEAR, Role.LINEAR]
    around = any(is_attention(one.layer.kind) and one.children for one in node.children)
    return is_attention(node.layer.kind) and not around


def attention(walk: Walk, node: Node, x: At) -> At:
    """Queries, keys and values of every pixel, and a projection of what is weighed by them: its
    rows read what the block reads, or as many values of each pixel as they say. Raises SummaryError
    where what it does is in no row."""
    kind, convolved = node.layer.kind.lower(), walk.inside[id(node)].convolved
    rows = _rows(walk, node)
    if kind not in SHOWN or len(rows) not in (2, 3, 4) or x.pixels < _LEAST_PIXELS:
        raise untold(node.layer)
    if not convolved and not x.last:
        made = attention(walk, node, replace(x, last=True, tokens=walk.tokens))
        return made if walk.tokens else replace(made, last=False)
    if keys := _fewer(node, x):
        return _pyramid(walk, node, x, keys)
    if kind == "attention" and x.pixels > _MOST_PIXELS:
        raise untold(node.layer)
    weighed = _scores(walk, node, x)
    current = x
    for child in unlisted(node.children):
        inside = walk.inside[id(child)]
        if inside.matters and child not in rows:
            walk.skip(child)
            continue
        given = x if inside.first == x.channels else current
        if inside.first not in (0, given.channels):
            if inside.first > _MOST_OF_READ * current.channels:
                raise unclear(child.layer, inside.first, current)
            given = replace(given, channels=inside.first)
            if kind in _POOLS and given.pixels == x.pixels:
                given = halved(given)
        if weighed and not inside.first and current is not x:
            given = weighed
        made = walk.row(child, given)
        if made.pixels != given.pixels and kind not in _POOLS:
            raise untold(node.layer)
        if child in rows:
            current = made
            weighed = None if child is rows[-1] else weighed
    pooled = current.pixels < x.pixels
    if kind == "attentiondownsample" and not pooled:
        raise untold(node.layer)
    if current.channels != x.channels and not convolved and not pooled:
        raise untold(node.layer)
    return current


def _rows(walk: Walk, node: Node) -> list[Node]:
    """Those below an attention that make queries, keys and values, and that put what is weighed
    together."""
    return [
        one
        for one in node.children
        if walk.inside[id(one)].matters and not walk.inside[id(one)].places
    ]


def _scores(walk: Walk, node: Node, x: At) -> At | None:
    """What an attention stores that weighs pixels by their places, too: a score of each pixel for
    each in its window and each head; None of another. A window's size is in no row: it is the
    largest one that was published for such an input."""
    places = [one for one in node.children if walk.inside[id(one)].places]
    if not places:
        return None
    last = places[0]
    while last.children:
        last = next(one for one in reversed(last.children) if walk.inside[id(one)].matters)
    window = min(max(x.sides), -(-walk.side // _WINDOWS.get(node.layer.kind.lower(), 1)))
    return At(last.layer.attribute("out_features"), (x.pixels, window * window))


def _fewer(node: Node, x: At) -> At | None:
    """The pixels that give keys and values, where convolutions or pools make them fewer (PVT)."""
    slides = [one for one in node.children if not one.children and one.layer.role in _SLIDES]
    if not slides or len(slides) == len([one for one in node.children if one.layer.parameters]):
        return None
    made = replace(x, last=False)
    for one in slides:
        made = leaf(one.layer, made)
    return replace(made, last=True, tokens=x.tokens)


def _pyramid(walk: Walk, node: Node, x: At, keys: At) -> At:
    """An attention to fewer pixels: its matrices are printed before what makes these."""
    slid = x
    for child in node.children:
        layer = child.layer
        if layer.role in _SLIDES:
            slid = walk.row(child, slid)
            continue
        reads = layer.attribute("in_features")
        if layer.role is Role.LINEAR and reads != x.channels:
            raise unclear(layer, reads, x)
        both = layer.attribute("out_features") == 2 * reads  # keys and values
        walk.row(child, keys if (both if reads else slid is not x) else x)
    return x
