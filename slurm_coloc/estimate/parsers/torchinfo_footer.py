# SPDX-License-Identifier: Apache-2.0
"""What torchinfo's footer says of the rows: what is missing of them, what is not trained."""

from collections.abc import Sequence
from dataclasses import replace

from slurm_coloc.estimate.kinds import Role, holds_activation
from slurm_coloc.estimate.lexing import bounded, fail
from slurm_coloc.estimate.summary import Layer
from slurm_coloc.estimate.tables import Footer


def own_frozen(layers: list[Layer], trainable: int) -> list[Layer]:
    """Parameters of a block itself are printed without parentheses whether they are trained or not:
    they are not where the footer's trained ones are those of other rows."""
    own = [layer.role is Role.BLOCK and not layer.frozen for layer in layers]
    others = [x for x, block in zip(layers, own, strict=True) if not block and not x.frozen]
    if not any(layer.frozen for layer in layers) or sum(x.parameters for x in others) < trainable:
        return layers
    return [
        replace(layer, frozen=True) if block and layer.parameters else layer
        for layer, block in zip(layers, own, strict=True)
    ]


def parameters_of(total: int, footer: Footer, sized: bool) -> tuple[int, tuple[str, ...]]:
    """The larger of rows and footer.

    A footer above the rows means that rows are missing; where it is ``sized`` (it has the pass
    size) the outputs of the missing rows can still be counted.
    """
    if footer.total is None or footer.total == total:
        return total, ()
    if footer.total > total * 1.02 + 1000 and not sized:
        raise fail(
            "disagreement",
            f"the rows hold {total:,} parameters, the footer {footer.total:,}: rows are missing",
        )
    note = f"rows hold {total:,} parameters, the footer {footer.total:,}: the larger is taken"
    return max(total, footer.total), (note,)


def size_of(lines: Sequence[str], title: str) -> int:
    """Bytes of "Forward/backward pass size (MB): 4932.50"; 0 where the line is missing."""
    for line in lines:
        head, _, value = line.strip().partition(":")
        if head.startswith(title):
            scale = {"(KB)": 10**3, "(MB)": 10**6, "(GB)": 10**9, "(TB)": 10**12}
            unit = next((size for text, size in scale.items() if text in head), 10**6)
            whole, _, part = value.strip().replace(",", "").partition(".")
            if whole.isdecimal() and whole.isascii() and len(whole) <= 15:
                digits = part[:2] if part[:2].isdecimal() and part.isascii() else "0"
                return bounded(int(whole) * unit + int(digits.ljust(2, "0")) * unit // 100)
    return 0


def hidden_of(layers: list[Layer], pass_bytes: int, batch: int | None) -> int:
    """Elements per sample that the footer counts (4 bytes, doubled) beyond the visible leaves."""
    counted = -(-pass_bytes // (8 * max(1, batch or 1)))
    seen = sum(
        max(0, layer.output_elements)
        for layer in layers
        if layer.leaf
        and (layer.parameters or (layer.recursive and layer.role not in (Role.BLOCK, Role.ALIAS)))
        and layer.outputs
        and not layer.closed(layer.outputs[0])
        and not holds_activation(layer.kind)  # it has children: the footer does not count it
        and not _small_block(layer)
    )
    return max(0, counted - seen)


def _small_block(layer: Layer) -> bool:
    """Whether a block's few parameters are those of a hidden row (a gate's kernel over channels)
    and not vectors of its own, which are as long as a side of the output."""
    if layer.role is not Role.BLOCK or layer.parameters < 2:
        return False
    return not any(side > 1 and layer.parameters % side == 0 for side in layer.outputs[0])
