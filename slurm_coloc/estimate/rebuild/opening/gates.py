# SPDX-License-Identifier: Apache-2.0
"""Squeeze-and-excitation: the image's mean through two small matrices scales its channels."""

from slurm_coloc.estimate.rebuild.opening.rows import Style, conv, group, image, row
from slurm_coloc.estimate.rebuild.scope import Shape
from slurm_coloc.estimate.rebuild.tree import Node


def gate(style: Style, given: Shape, out: Shape, parameters: int) -> list[Node] | None:
    """The rows of one."""
    few = reduced(parameters, out[1], out[1])
    return _rows(style, out, few) if few else None


def reduced(parameters: int, channels: int, most: int) -> int | None:
    """Channels that a gate of so many parameters squeezes to, 0 without a gate; None where that is
    not one."""
    if parameters == 0:
        return 0
    few, odd = divmod(parameters - channels, 2 * channels + 1)
    return None if odd or not 1 <= few <= max(channels, most) else few


def gated(style: Style, shape: Shape, few: int) -> list[Node]:
    """The block, if there is one."""
    return [group("SqueezeExcite", shape, shape, _rows(style, shape, few))] if few else []


def _rows(style: Style, shape: Shape, few: int) -> list[Node]:
    point = (shape[0], shape[1], 1, 1)
    small = image(few, point)
    return [
        conv(point, small, bias=True),
        row(style.act, small, small),
        conv(small, point, bias=True),
        row("Sigmoid", point, point),
    ]
