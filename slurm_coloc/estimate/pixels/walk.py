# SPDX-License-Identifier: Apache-2.0
"""Shapes for convolutional networks whose text prints none (print(model)), from an input's shape.

Each convolution says how many channels it reads. Where these are not those of the value before it,
it reads an older value of the same block (a shortcut, a branch), a part of the last one or a
concatenation, and which of them follows from the channels of what was made so far. Where nothing
makes them up there is no answer: the code between the rows does more than can be told.
"""

from dataclasses import replace

from slurm_coloc.errors import SummaryError
from slurm_coloc.estimate.kinds import Role
from slurm_coloc.estimate.lexing import Shape, fail
from slurm_coloc.estimate.pixels.as_run import SPLIT, as_run
from slurm_coloc.estimate.pixels.attention import attends, attention
from slurm_coloc.estimate.pixels.frame import (
    MOST,
    At,
    Frame,
    joined,
    of_tokens,
    unclear,
    untold,
)
from slurm_coloc.estimate.pixels.inside import GATES, inside
from slurm_coloc.estimate.pixels.modules import BLUR, halved, leaf
from slurm_coloc.estimate.rebuild.blocks import PARALLEL
from slurm_coloc.estimate.rebuild.doubt import LIST, by_number
from slurm_coloc.estimate.rebuild.tree import Node, tree, unlisted
from slurm_coloc.estimate.summary import Layer, Summary

#: parts of class names whose own code splits, turns or weighs in a way that no row shows
#: (GCViT's stages read their pixels beside those that a feature block pools)
_OPAQUE = (
    "splitattn", "selectivekernel", "mixedconv", "involution", "featureblock",
)  # fmt: skip
#: four pixels become one before its first row (Swin)
_MERGES = "patchmerging"
#: blocks of which two rows read one value: a matrix on a shortcut (Hiera), two heads (LeViT)
_AGAIN = ("hierablock", "multiscaleblock", "levitdistilled")
#: blocks around a row in which a long skip may begin
_MOST_FRAMES = 8
#: rows that are run, tries included
_MOST_CALLS = 100_000


def with_pixels(summary: Summary, shape: Shape) -> Summary:
    """The summary with the shapes that follow from an input of ``shape`` (channels first, without
    the batch). Raises SummaryError no_shapes where they do not follow, number_out_of_range."""
    top = tree(summary)
    as_run(top)
    _Walk(top, shape).rows(top, At(shape[0], tuple(shape[1:])))
    return replace(summary, layers=tuple(_flat(top, 0, [])), shapes=True)


def _flat(nodes: list[Node], depth: int, into: list[Layer]) -> list[Layer]:
    """The rows of a tree in order, put behind those of ``into``."""
    for node in nodes:
        into.append(replace(node.layer, depth=depth))
        _flat(node.children, depth + 1, into)
    return into


class _Walk:
    """One pass over the rows in the order in which they are printed."""

    def __init__(self, top: list[Node], shape: Shape) -> None:
        needs: list[int] = []
        self.inside = inside(top, needs, {})
        self._place = 0  # of the next leaf
        # Of each leaf: channels that it or the first one after it which is particular reads.
        self._wanted = [0] * (len(needs) + 1)
        for place in reversed(range(len(needs))):
            self._wanted[place] = needs[place] or self._wanted[place + 1]
        self._calls = 0
        self._frames: list[Frame] = []
        self.tokens = bool(top) and of_tokens(top[0].layer.kind)
        self.side = max(shape[1:], default=0)  # of the input

    def rows(self, nodes: list[Node], x: At) -> At:
        """What a block's rows make of ``x``, before the block's own code."""
        return self._run(nodes, Frame(x))

    def _run(self, nodes: list[Node], frame: Frame, residual: bool = False) -> At:
        self._frames.append(frame)
        current = frame.reads
        for node in nodes:
            if any("List" in child.layer.kind == node.layer.kind for child in node.children):
                raise untold(node.layer)  # the code takes rows of them by number (HRNet)
            if by_number(node):
                raise untold(node.layer)
        lists = [node.layer for node in nodes if node.layer.kind == LIST]
        if len(lists) > 1:
            raise untold(lists[0])  # it takes one of each in turn (a U-Net's ways down and up)
        for node in unlisted(nodes):
            if node.layer.attribute("shortcut") and residual:
                frame.made.append(self.row(node, frame.reads))
                continue
            given = self._given(node, current)
            made = self.row(node, given, beside=frame.whole > 0)
            if given.last and given.sides == (current.channels,) != current.sides:
                if made != given:
                    raise untold(node.layer)
                made = current  # a matrix over the pixels: turned, and turned back
            frame.add(made, given, node.times if self.inside[id(node)].slides else 0)
            current = made
        self._frames.pop()
        return current

    def row(self, node: Node, x: At, beside: bool = False) -> At:
        """Run a row on ``x``; its shapes are written into it. ``beside``: where it is repeated, its
        copies read one value each."""
        if node.layer.kind.lower() in _AGAIN and not self.inside[id(node)].convolved:
            x = replace(x, last=True, tokens=self.tokens)
        self._calls += 1
        if self._calls > _MOST_CALLS:
            raise fail("too_many_layers", "the model has too many branches to be followed")
        self._place += not node.children or node.layer.role is Role.NORM
        if not node.children:
            made = self._leaf(node, x)
        elif node.layer.kind.lower().startswith(BLUR):
            self._place += self.inside[id(node)].needs
            made = halved(x)
        else:
            made = self._block(node, x)
        if node.times > 1 and made != x and not beside:
            raise fail("no_shapes", f"{node.layer.kind} is repeated and changes its shape")
        node.layer = replace(node.layer, inputs=(x.shape,), outputs=(made.shape,))
        return made

    def _leaf(self, node: Node, x: At) -> At:
        if not self.tokens:
            return leaf(node.layer, x)
        if node.layer.role is Role.CONV and x.last:  # turned for it, and turned back
            sides = leaf(node.layer, replace(x, last=False)).sides
            return replace(x, channels=node.layer.attribute("second"), sides=sides)
        made = leaf(node.layer, x)
        return replace(made, tokens=made.last)

    def skip(self, node: Node) -> None:
        """Pass over a row of the pixels' places, which is small."""
        self._place += self.inside[id(node)].needs
        _small(node)

    def _block(self, node: Node, x: At) -> At:
        """A container: its rows, and what its code makes of what they made."""
        kind = node.layer.kind.lower()
        if kind.startswith(GATES):
            return self._gate(node, x)
        if any(part in kind for part in _OPAQUE):
            raise untold(node.layer)
        if kind.startswith(SPLIT):
            return self._split(node, x)
        if attends(node):
            return attention(self, node, x)
        if kind.startswith(PARALLEL):
            made = x
            for child in unlisted(node.children):
                made = self.row(child, x if self.inside[id(child)].weighs else made, beside=True)
            return made
        frame = Frame(x, again=kind in _AGAIN)
        current = self._run(node.children, frame, _is_block(node))
        if kind.startswith("ghostmodule"):  # half of it is made of the other half
            return replace(current, channels=2 * current.channels)
        weighted = any(self.inside[id(child)].weighs for child in node.children)
        if weighted and current.channels == x.channels and current.pixels == 1 < x.pixels:
            return x  # a gate, whatever its name
        if (
            current.last
            and not x.last
            and (current.channels, current.sides) == (x.channels, x.sides)
        ):
            return x  # channels are put first again (ConvNeXt)
        return self._gathered(frame, current)

    def _split(self, node: Node, x: At) -> At:
        """Res2Net's: parts of what the first row made are convolved each by itself, then together
        again."""
        current, cut, again = x, None, False
        for child in unlisted(node.children):
            if child.layer.attribute("shortcut"):
                self.row(child, x)
                continue
            need, given = self.inside[id(child)].first, current
            if cut is None and 0 < need < current.channels:
                cut = current
            if cut is not None and need == cut.channels:
                given, cut, again = replace(current, channels=need), None, True
            elif cut is not None and child.layer.role in (Role.CONV, Role.POOL):
                given = replace(cut, channels=need or current.channels)
            current = self.row(child, given)
        if not again:
            raise untold(node.layer)
        return current

    def _gate(self, node: Node, x: At) -> At:
        mean = At(x.channels, tuple(1 for _ in x.sides))
        if self._next() == 1:  # ECA's convolution runs over the channels
            mean = At(1, (x.channels,))
        self.rows(node.children, mean)
        return x

    def _next(self) -> int:
        """Channels that the next leaf which is particular about them reads; 0: there is none."""
        return self._wanted[self._place]

    def _gathered(self, frame: Frame, made: At) -> At:
        """The concatenation of what a block's rows made, where the next row reads as much."""
        want = self._next()
        flat = made.channels * made.pixels
        if want in (0, made.channels, flat) or made.last or len(frame.parts) < 2:
            return made
        pooled = frame.reads.channels  # of the input, by a function
        for ends in (frame.ends, frame.ends[:-1]):
            total = sum(one.channels for one in ends if one.sides == made.sides)
            if total and total + pooled == want:
                return replace(made, channels=want)
        if found := joined(frame, made, want):
            return found
        alike = [part.channels for part in frame.parts if part.sides == made.sides]
        if len(alike) > 2 and made.channels < want <= sum(alike):
            return replace(made, channels=want)  # some of them (Inception's last blocks)
        return made

    def _given(self, node: Node, current: At) -> At:
        """What a row reads."""
        inside = self.inside[id(node)]
        need = inside.first
        if need in (0, current.channels) or not current.sides:
            return current
        if inside.matrix and need == current.channels * current.pixels:
            return current
        if need == 4 * current.channels and self._merges(node):
            own = node.layer.kind.lower() == _MERGES
            return replace(halved(current), channels=need) if own else current
        if current.last and need == current.pixels:
            return At(need, (current.channels,), last=True)
        frame = self._frames[-1]
        if current.last and not inside.convolved and not frame.again:  # it is the code's
            raise unclear(node.layer, need, current)
        last = (*reversed(frame.made[-MOST:]), frame.reads)
        older = [one for one in last if one.channels == need and one.sides]
        for one in older:
            if one.sides == current.sides or self._makes(node, one).sides == current.sides:
                return one
        if frame.again and older:
            return older[0]
        if both := joined(frame, current, need):
            return both
        part = need < current.channels and current.channels % need == 0 and len(current.sides) > 1
        if need == frame.whole:
            return replace(current, channels=need)  # its parts, put together again
        if older and not part:
            return older[0]
        for outer in self._frames[-_MOST_FRAMES:]:
            for one in (*outer.made[-MOST:], outer.reads):
                if one.channels + current.channels == need and one.sides == current.sides:
                    return replace(current, channels=need)  # a long skip (U-Net)
        if part:
            frame.whole = current.channels
            return replace(current, channels=need)
        raise unclear(node.layer, need, current)

    def _merges(self, node: Node) -> bool:
        """Whether what a row reads first is four pixels together."""
        while node.layer.kind.lower() != _MERGES:
            first = (child for child in node.children if self.inside[id(child)].first)
            if (below := next(first, None)) is None:
                return False
            node = below
        return True

    def _makes(self, node: Node, x: At) -> At:
        """What a row would make of ``x``."""
        place, depth = self._place, len(self._frames)
        try:
            return self.row(node, x)
        except SummaryError:
            return x
        finally:
            self._place = place
            del self._frames[depth:]


def _small(node: Node) -> None:
    one = ((1, max(1, node.layer.attribute("out_features"))),)
    node.layer = replace(node.layer, inputs=one, outputs=one)
    for child in node.children:
        _small(child)


def _is_block(node: Node) -> bool:
    """Whether a row of such a name goes around the other rows: in a stage it goes before them."""
    kind = node.layer.kind.lower()
    return any(
        part in kind for part in ("block", "bottleneck", "residual", "unit", "xception", "preact")
    )
