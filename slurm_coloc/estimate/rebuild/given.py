# SPDX-License-Identifier: Apache-2.0
"""What a model reads, where its summary has no column for it (torchinfo's default has none)."""

from math import isqrt

from slurm_coloc.estimate.kinds import Role
from slurm_coloc.estimate.rebuild.scope import Shape, elements
from slurm_coloc.estimate.summary import Layer, Summary

#: channels of an image, the usual ones first
CHANNELS = (3, 1, 4, 2, 6, 12, 13, 10, 5, 8, 16, 32, 64)
STRIDES = (2, 1, 4, 16, 14, 8, 32, 7, 3, 5, 6, 12)


def given(summary: Summary) -> Shape:
    """The shape of one sample of the batch."""
    first = summary.layers[0]
    if first.inputs:
        return first.inputs[0]
    row = next((x for x in summary.layers if x.leaf and x.outputs and x.parameters), None)
    if row is not None and row.role is Role.EMBEDDING and len(row.outputs[0]) > 1:
        return row.outputs[0][:-1]  # numbers of words
    if row is not None and summary.format in ("torchinfo", "torchsummary"):
        found = _image(row, summary) if row.role is Role.CONV else _features(row)
        if found:
            return found
    known = next((x.inputs[0] for x in summary.layers if x.inputs), None)
    return known or (first.outputs[0] if first.outputs else (1,))


def _features(row: Layer) -> Shape | None:
    """Of a first matrix: as many as it has rows."""
    if row.role is not Role.LINEAR:
        return None
    out = row.outputs[0]
    for count in (row.parameters - out[-1], row.parameters):
        if count > 0 and count % out[-1] == 0:
            return (*out[:-1], count // out[-1])
    return None


def _image(row: Layer, summary: Summary) -> Shape | None:
    """Of a first convolution: channels and kernel from its parameters, the stride from the footer's
    input size, or the usual one of such a kernel."""
    out = row.outputs[0]
    if len(out) != 4:
        return None
    for channels in CHANNELS:
        for count in (row.parameters, row.parameters - out[1]):
            square, odd = divmod(count, channels * out[1])
            side = isqrt(square) if square > 0 else 0
            if odd or side * side != square or not 1 <= side <= 32:
                continue
            for stride in STRIDES if summary.input_bytes else (_usual(side, out),):
                shape = (out[0], channels, out[2] * stride, out[3] * stride)
                if not summary.input_bytes or _fits(shape, summary):
                    return shape
    return None


def _usual(side: int, out: Shape) -> int:
    if side in (2, 4, 8, 14, 16, 32):
        return side  # patches
    return 2 if side == 7 or out[2] in (112, 128, 144, 150, 160, 190, 192) else 1


def _fits(shape: Shape, summary: Summary) -> bool:
    """The footer has two decimals; a convolution without padding loses some pixels."""
    size = 4 * elements(shape) * (summary.batch_in_text or 1)
    return abs(size - summary.input_bytes) <= 6_000 + 0.03 * size
