# SPDX-License-Identifier: Apache-2.0
"""Inverted residuals (MobileNet, EfficientNet and their kin): what stands inside follows from the
channels at both ends and from the number of parameters.

A row's parameters are in * mid + mid * k * k + mid * out, two for each channel of a normalisation,
and 2 * mid * reduced + reduced + mid where a squeeze-and-excitation stands between: expansion,
kernel and reduction that give the number exactly are what the block has.
"""

from collections.abc import Iterator

from slurm_coloc.estimate.rebuild.opening.rows import Style, conv, gated, image, norm_act, reduced
from slurm_coloc.estimate.rebuild.scope import Shape
from slurm_coloc.estimate.rebuild.tree import Node

KERNELS = (3, 5, 7, 9)
WIDEST = 2048  # channels for which all widths inside are tried
#: channels in the middle over those at the start
EXPANSIONS = (6, 4, 3, 2, 1, 8, 5, 2.5, 4.5, 3.5, 1.5, 7, 2.3, 5.5, 6.5)


def inverted(style: Style, given: Shape, out: Shape, parameters: int) -> list[Node] | None:
    """Expansion by 1x1, a convolution of each channel, maybe a gate, projection by 1x1."""
    for mid in _middles(given[1]):
        ends = given[1] * mid + mid * out[1] + 2 * out[1] + 4 * mid
        for kernel in KERNELS:
            gate = reduced(parameters - ends - mid * kernel**2, mid, given[1])
            if gate is None:
                continue
            wide, small = image(mid, given), image(mid, out)
            return [
                conv(given, wide),
                *norm_act(style, wide),
                conv(wide, small, kernel, mid),
                *norm_act(style, small),
                *_projected(style, small, out, gate),
            ]
    return None


def separable(style: Style, given: Shape, out: Shape, parameters: int) -> list[Node] | None:
    """The same without an expansion."""
    mid = given[1]
    ends = mid * out[1] + 2 * mid + 2 * out[1]
    for kernel in KERNELS:
        gate = reduced(parameters - ends - mid * kernel**2, mid, mid)
        if gate is None:
            continue
        small = image(mid, out)
        return [
            conv(given, small, kernel, mid),
            *norm_act(style, small),
            *_projected(style, small, out, gate),
        ]
    return None


def edge(style: Style, given: Shape, out: Shape, parameters: int) -> list[Node] | None:
    """Expansion and kernel in one convolution (fused MBConv)."""
    for mid in _middles(given[1]):
        for kernel in KERNELS[:2]:
            ends = given[1] * mid * kernel**2 + mid * out[1] + 2 * mid + 2 * out[1]
            gate = reduced(parameters - ends, mid, given[1])
            if gate is None:
                continue
            small = image(mid, out)
            return [
                conv(given, small, kernel),
                *norm_act(style, small),
                *_projected(style, small, out, gate),
            ]
    return None


def _projected(style: Style, given: Shape, out: Shape, gate: int) -> list[Node]:
    """The end of a block: maybe a gate, projection by 1x1 without an activation."""
    return [*gated(style, given, gate), conv(given, out), *norm_act(style, out, False)]


def _middles(channels: int) -> Iterator[int]:
    """Channels in the middle: the usual factors, then every multiple of eight."""
    seen = set()
    for factor in EXPANSIONS:
        exact = int(channels * factor)
        for mid in (exact, max(8, (exact + 4) // 8 * 8)):
            if mid not in seen:
                seen.add(mid)
                yield mid
    for mid in range(8, 8 * min(channels, WIDEST) + 1, 8):
        if mid not in seen:
            yield mid
