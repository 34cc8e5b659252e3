# SPDX-License-Identifier: Apache-2.0
"""Convolutions with their normalisation, shortcuts, and blocks made of them."""

from slurm_coloc.estimate.rebuild.opening.rows import (
    Style,
    conv,
    gated,
    group,
    image,
    norm_act,
    reduced,
    row,
    width,
)
from slurm_coloc.estimate.rebuild.scope import Shape
from slurm_coloc.estimate.rebuild.tree import Node

SIDES = (1, 3, 5, 7, 2, 4, 9)  #: of kernels
WIDTHS = (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 232)  #: channels of a group


def convolved(
    style: Style, given: Shape, out: Shape, parameters: int, active: bool = True
) -> list[Node] | None:
    """A convolution, its normalisation and activation."""
    found = _kernel(given[1], out[1], parameters - 2 * out[1])
    if found is None:
        return None
    return [conv(given, out, *found), *norm_act(style, out, active)]


def _kernel(read: int, made: int, weights: int) -> tuple[int, int] | None:
    """Side of the kernel and groups of a convolution without bias: one group where that fits, then
    one for each channel, then the largest groups."""
    each, odd = divmod(weights, made)  # elements of one filter
    if odd or each < 1:
        return None
    for side in SIDES:
        if each == read * side**2:
            return side, 1
    for side in SIDES:
        part, odd = divmod(each, side**2)
        if odd or read % part or made % (read // part):
            continue
        if part == 1 or side == 3:
            return side, read // part
    return None


def shortcut(style: Style, given: Shape, out: Shape, parameters: int) -> list[Node] | None:
    """A 1x1 convolution and its normalisation, after pooling where the image gets smaller."""
    if parameters != given[1] * out[1] + 2 * out[1]:
        return None
    return [conv(given, out), *norm_act(style, out, False)]


def bottleneck(style: Style, given: Shape, out: Shape, parameters: int) -> list[Node] | None:
    """1x1, 3x3, maybe a gate, 1x1, with a shortcut of its own where the shape changes (BYOB nets,
    RegNets)."""
    changes = given != out
    rest = parameters - (given[1] * out[1] + 2 * out[1] if changes else 0)
    for part in (4, 2, 1, 8):
        mid = out[1] // part
        inside = rest - given[1] * mid - mid * out[1] - 4 * mid - 2 * out[1]
        for each in (mid, *(x for x in WIDTHS if x < mid and mid % x == 0)):
            gate = reduced(inside - 9 * each * mid, mid, given[1])
            if gate is None or not mid:
                continue
            wide, small = image(mid, given), image(mid, out)
            rows = [
                _named(given, wide, [conv(given, wide), *norm_act(style, wide)]),
                _named(wide, small, [conv(wide, small, 3, mid // each), *norm_act(style, small)]),
                *gated(style, small, gate),
                _named(small, out, [conv(small, out), *norm_act(style, out, False)]),
            ]
            return _ended(style, rows, given, out, changes)
    return None


def _named(given: Shape, out: Shape, children: list[Node]) -> Node:
    return group("ConvNormAct", given, out, children)


def basic(style: Style, given: Shape, out: Shape, parameters: int) -> list[Node] | None:
    """Two convolutions of 3x3, with a shortcut of its own where the shape changes."""
    changes = given != out
    rest = parameters - (given[1] * out[1] + 2 * out[1] if changes else 0)
    if rest != 9 * out[1] * (given[1] + out[1]) + 4 * out[1]:
        return None
    rows = [
        _named(given, out, [conv(given, out, 3), *norm_act(style, out)]),
        _named(out, out, [conv(out, out, 3), *norm_act(style, out, False)]),
    ]
    return _ended(style, rows, given, out, changes)


def _ended(style: Style, rows: list[Node], given: Shape, out: Shape, changes: bool) -> list[Node]:
    """With the shortcut and the activation after the sum."""
    if changes:
        rows.append(_named(given, out, [conv(given, out), *norm_act(style, out, False)]))
    return [*rows, row(style.act, out, out)]


def merging(style: Style, given: Shape, out: Shape, parameters: int) -> list[Node] | None:
    """Four neighbours become one token of twice the width (Swin)."""
    if len(given) != 4 or out[1] * 2 != given[1]:
        return None
    four = width(4 * given[-1], out)
    weights = four[-1] * out[-1]
    for shape in (four, width(out[-1], out)):
        if parameters != weights + 2 * shape[-1]:
            continue
        norm = row("LayerNorm", shape, shape, 2 * shape[-1])
        matrix = row("Linear", four, out, weights)
        return [norm, matrix] if shape is four else [matrix, norm]
    return None


def downsampled(style: Style, given: Shape, out: Shape, parameters: int) -> list[Node] | None:
    """LayerNorm, then a convolution of 2x2 (ConvNeXt)."""
    if len(given) != 4 or parameters != 2 * given[1] + 4 * given[1] * out[1] + out[1]:
        return None
    return [row("LayerNorm2d", given, given, 2 * given[1]), conv(given, out, 2, bias=True)]


def dense(style: Style, given: Shape, out: Shape, parameters: int) -> list[Node] | None:
    """DenseNet's layer: 1x1 on everything before it to four times its growth, then 3x3. What it
    reads is in no row: its channels follow from the parameters."""
    growth = out[1]
    wide = 4 * growth
    channels, odd = divmod(parameters - 2 * wide - 9 * wide * growth, 2 + wide)
    if odd or channels < 1:
        return None
    whole, between = image(channels, out), image(wide, out)
    return [
        *norm_act(style, whole),
        conv(whole, between),
        *norm_act(style, between),
        conv(between, out, 3),
    ]
