# SPDX-License-Identifier: Apache-2.0
"""Attention in windows of an image (Swin): its blocks and stages of them."""

from slurm_coloc.estimate.rebuild.opening.rows import WHOLE, Style, group, linear, row
from slurm_coloc.estimate.rebuild.opening.tokens import feedforward
from slurm_coloc.estimate.rebuild.scope import Shape
from slurm_coloc.estimate.rebuild.tree import Node

#: sides that are tried
WINDOWS = (7, 8, 12, 16, 24)


def windows(style: Style, given: Shape, out: Shape, parameters: int) -> list[Node] | None:
    """Blocks with a table of positions each, whose size tells the window."""
    channels = out[-1]
    if len(out) != 4 or channels % 32:
        return None
    times, tables = divmod(parameters, 12 * channels**2 + 13 * channels)
    table, odd = divmod(tables, times) if times else (0, 1)
    side = _side(table, channels // 32)
    if odd or side is None or out[1] % side or out[2] % side:
        return None
    return [_block(style, out, _product(style, out, side, table)) for _ in range(min(times, 1000))]


def window(style: Style, given: Shape, out: Shape, parameters: int) -> list[Node] | None:
    """Attention of one such block (torchvision's, whose matrices are no rows)."""
    channels = out[-1]
    if len(out) != 4 or channels % 32:
        return None
    table = parameters - 4 * channels**2 - 4 * channels
    side = _side(table, channels // 32)
    if side is None or out[1] % side or out[2] % side:
        return None
    return [_product(style, out, side, table)]


def windows2(style: Style, given: Shape, out: Shape, parameters: int) -> list[Node] | None:
    """Blocks of Swin 2: positions by a small network of 512 features. The window is in no number of
    a row, but the footer counts that network's outputs."""
    channels, heads = out[-1], out[-1] // 32
    if len(out) != 4 or channels % 32:
        return None
    side = min(style.window, out[1], out[2])  # the last stage's image may be smaller
    for biases in (2 * channels, 3 * channels):  # timm's keys have none
        one = 12 * channels**2 + 10 * channels + biases + 513 * heads + 1536
        if parameters % one == 0 and out[1] % side == 0 and out[2] % side == 0:
            own = 3 * channels**2 + biases + heads
            times = min(parameters // one, 1000)
            return [_block(style, out, _cosine(style, out, side, own)) for _ in range(times)]
    return None


def _side(table: int, heads: int) -> int | None:
    """Of a window with (2 * side - 1) squared positions."""
    return next((x for x in WINDOWS if (2 * x - 1) ** 2 * heads == table), None)


def _inside(out: Shape, side: int) -> tuple[Shape, Shape]:
    """Shapes of the windows' tokens and of their scores."""
    tokens, many = side * side, out[0] * out[1] * out[2] // side**2
    return (many, tokens, out[-1]), (many, out[-1] // 32, tokens, tokens)


def _product(style: Style, out: Shape, side: int, table: int) -> Node:
    channels = out[-1]
    inside, scores = _inside(out, side)
    rows = [linear(inside, 3 * channels), row("Softmax", scores, scores), linear(inside, channels)]
    return group(_named(style), inside, inside, rows, table)


def _cosine(style: Style, out: Shape, side: int, own: int) -> Node:
    inside, scores = _inside(out, side)
    near = (1, 2 * side - 1, 2 * side - 1)
    small = [
        row("Linear", (*near, 2), (*near, 512), 3 * 512, once=True),
        row("ReLU", (*near, 512), (*near, 512)),
        row("Linear", (*near, 512), (*near, scores[1]), 512 * scores[1], once=True),
    ]
    rows = [
        group("Sequential", (*near, 2), (*near, scores[1]), small),
        row("Softmax", scores, scores),
        linear(inside, out[-1]),
    ]
    return group(_named(style), inside, inside, rows, own)


def _named(style: Style) -> str:
    """Torchvision's matrices are read as parameters: the footer counts nothing of them."""
    return WHOLE[1] if style.functional else "WindowAttention"


def _block(style: Style, out: Shape, attention: Node) -> Node:
    channels = out[-1]
    flat = (out[0], out[1] * out[2], channels)
    wide = feedforward(style, flat, flat, 8 * channels**2 + 5 * channels) or []
    rows = [
        row("LayerNorm", out, out, 2 * channels),
        attention,
        row("LayerNorm", flat, flat, 2 * channels),
        group("Mlp", flat, flat, wide),
    ]
    return group("SwinTransformerBlock", out, out, rows)
