# SPDX-License-Identifier: Apache-2.0
"""Blocks over tokens: feed-forward, attention, whole layers and lists of them."""

from dataclasses import replace

from slurm_coloc.estimate.rebuild.opening.rows import (
    WHOLE,
    Style,
    conv,
    group,
    linear,
    matrix,
    row,
    width,
)
from slurm_coloc.estimate.rebuild.scope import Shape
from slurm_coloc.estimate.rebuild.tree import Node

#: the product of queries and keys may have tables of positions and norms beside its matrices
MOST_TABLES = 0.25


def feedforward(style: Style, given: Shape, out: Shape, parameters: int) -> list[Node] | None:
    """Two matrices with biases and the activation between them."""
    if given != out:
        return None
    hidden, odd = divmod(parameters - out[-1], 2 * out[-1] + 1)
    if odd or not out[-1] // 4 <= hidden <= 16 * out[-1]:
        return None
    wide = width(hidden, out)
    return [linear(out, hidden), row(style.wide, wide, wide), linear(wide, out[-1])]


def attended(style: Style, given: Shape, out: Shape, parameters: int) -> list[Node] | None:
    """One matrix for queries, keys and values, and the projection."""
    channels = out[-1]
    tables = parameters - 4 * channels**2 - channels
    if given != out or not 0 <= tables <= 4 * channels + MOST_TABLES * channels**2:
        return None
    last = linear(out, channels)
    return [last] if style.functional else [linear(out, 3 * channels, bias=tables), last]


def layer(style: Style, given: Shape, out: Shape, parameters: int) -> list[Node] | None:
    """Normalisation, attention, normalisation, feed-forward: the hidden width is what is left."""
    channels = out[-1]
    if given != out or len(out) < 3:
        return None
    for attention in (4 * channels**2 + 4 * channels, 4 * channels**2 + channels):
        inside = feedforward(style, out, out, parameters - attention - 4 * channels)
        rows = attended(replace(style, functional=False), out, out, attention)
        if inside and rows:
            return [
                row("LayerNorm", out, out, 2 * channels),
                # The footer counts nothing of PyTorch's own class.
                group(WHOLE[0] if style.functional else "Attention", out, out, rows),
                row("Dropout", out, out),
                row("LayerNorm", out, out, 2 * channels),
                group("Mlp", out, out, inside),
                row("Dropout", out, out),
            ]
    return None


def layers(style: Style, given: Shape, out: Shape, parameters: int) -> list[Node] | None:
    """A list of equal layers, four times as wide inside."""
    channels = out[-1]
    one = 12 * channels**2 + 13 * channels
    times, odd = divmod(parameters, one)
    inside = layer(style, out, out, one) if times and not odd else None
    if inside is None:
        return None
    return [group("Block", out, out, inside) for _ in range(min(times, 1000))]


def gated_layer(style: Style, given: Shape, out: Shape, parameters: int) -> list[Node] | None:
    """Llama's layer: no biases, one vector a normalisation, ``style.shared`` queries to a key, a
    feed-forward of three matrices."""
    channels = out[-1]
    keys = channels // style.shared
    left = parameters - 2 * channels**2 - 2 * channels * keys - 2 * channels
    hidden, odd = divmod(left, 3 * channels)
    if given != out or channels % style.shared or odd or not channels <= hidden <= 8 * channels:
        return None
    wide, few = width(hidden, out), width(keys, out)
    attention = [matrix(out, x) for x in (out, few, few, out)]
    inside = [matrix(out, wide), row("SiLU", wide, wide), matrix(out, wide), matrix(wide, out)]
    return [
        row("RMSNorm", out, out, channels),
        group("LlamaSdpaAttention", out, out, attention),
        row("RMSNorm", out, out, channels),
        group("LlamaMLP", out, out, inside),
    ]


def transform(style: Style, given: Shape, out: Shape, parameters: int) -> list[Node] | None:
    """The head of a masked language model: a matrix, the activation, a normalisation."""
    channels = out[-1]
    if parameters != channels**2 + 3 * channels:
        return None
    norm = row("LayerNorm", out, out, 2 * channels)
    return [linear(given, channels), row(style.wide, out, out), norm]


def convnext(style: Style, given: Shape, out: Shape, parameters: int) -> list[Node] | None:
    """ConvNeXt's blocks: a convolution of each channel, then the feed-forward over channels."""
    if len(out) != 4:
        return None
    channels = out[1]
    one = 8 * channels**2 + 5 * channels + 50 * channels + 2 * channels
    last = (out[0], *out[2:], channels)
    for gamma in (channels, 0):
        times, odd = divmod(parameters, one + gamma)
        inside = feedforward(style, last, last, 8 * channels**2 + 5 * channels)
        if odd or not times or inside is None:
            continue
        rows = [
            conv(out, out, 7, channels, bias=True),
            row("LayerNorm", last, last, 2 * channels),
            group("Mlp", last, last, inside),
        ]
        return [group("ConvNeXtBlock", out, out, rows, gamma) for _ in range(min(times, 1000))]
    return None
