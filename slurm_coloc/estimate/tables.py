# SPDX-License-Identifier: Apache-2.0
"""What the table formats share: rules, footers, per-sample shapes."""

from collections.abc import Sequence
from dataclasses import dataclass

from slurm_coloc.estimate.lexing import UNKNOWN_DIM, Shape, bounded, fail, parse_count


def is_rule(line: str, char: str) -> bool:
    """The line is a horizontal rule of ``char``."""
    body = line.strip()
    return len(body) >= 3 and not body.strip(char)


def ruled_below(lines: Sequence[str], index: int, char: str) -> bool:
    """The next line but blank ones, one at most, is a horizontal rule of ``char``."""
    below = [line for line in lines[index + 1 : index + 3] if line]
    return bool(below) and is_rule(below[0], char)


@dataclass(frozen=True, slots=True)
class Footer:
    """The counts below a table; None where the line is missing."""

    total: int | None = None
    trainable: int | None = None
    optimizer: int | None = None


_KEYS = (
    ("non-trainable params", None),  # before "trainable params", which it contains
    ("trainable params", "trainable"),
    ("total params", "total"),
    ("optimizer params", "optimizer"),
)


def footer_of(lines: Sequence[str]) -> Footer:
    """The largest of each count that the lines state (two footers: the safe side)."""
    found: dict[str, int] = {}
    for line in lines:
        head, colon, rest = line.strip().lower().partition(":")
        if not colon or len(head) > 40:
            continue
        for key, name in _KEYS:
            if head.startswith(key):
                words = rest.split()
                count = parse_count(words[0]) if words and name else None
                if name and count is not None and "(" not in head:
                    found[name] = max(count, found.get(name, 0))
                break
    return Footer(**found)


def trainable_of(footer: Footer, parameters: int) -> int:
    """Trainable parameters; all of them where the footer does not say or contradicts itself."""
    if footer.trainable is None or footer.total is None or footer.trainable > parameters:
        return parameters
    return bounded(parameters - max(0, footer.total - footer.trainable))


def per_sample(shape: Shape, batch: int | None) -> Shape:
    """The shape of one sample.

    An unknown leading dimension is the batch. A known one is divided by ``batch`` where it can be;
    where it cannot it stays, which errs on the large side.
    """
    if not shape:
        return shape
    head = shape[0]
    if head == UNKNOWN_DIM:
        return (1, *shape[1:])
    if batch and head % batch == 0:
        return (head // batch, *shape[1:])
    return shape


def refuse_negative(shapes: Sequence[Shape]) -> None:
    """Only the leading dimension may be -1 in the formats of PyTorch."""
    for shape in shapes:
        if UNKNOWN_DIM in shape[1:]:
            raise fail("bad_shape", f"a shape has a negative dimension: {list(shape)}")
