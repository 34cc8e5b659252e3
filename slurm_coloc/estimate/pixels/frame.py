# SPDX-License-Identifier: Apache-2.0
"""Values while shapes are followed, and a block's values as long as it is open."""

from dataclasses import dataclass, field, replace
from math import prod

from slurm_coloc.estimate.lexing import Shape, fail
from slurm_coloc.estimate.summary import Layer

#: values of a block that a concatenation may have, or that a later row may read
MOST = 64
_OF_TOKENS = (
    "metaformer",
    "levit",
    "pyramidvision",
    "davit",
    "hiera",
    "swintransformerv2",
    "visiontransformer",
)


@dataclass(frozen=True, slots=True)
class At:
    """A value of one sample: ``sides`` () once it is flat. ``last``: channels come last;
    ``tokens``: and the pixels in one row."""

    channels: int
    sides: tuple[int, ...]
    last: bool = False
    tokens: bool = False

    @property
    def shape(self) -> Shape:
        """With the sample's leading 1."""
        if self.last:
            return (1, *((self.pixels,) if self.tokens else self.sides), self.channels)
        return (1, self.channels, *self.sides)

    @property
    def pixels(self) -> int:
        """Of one channel."""
        return prod(self.sides)


@dataclass(slots=True)
class Frame:
    """An open block: what it reads and what its rows made. ``parts``: of that what convolutions
    and pools made, ``ends``: what no later row read. ``whole``: what was cut into parts.
    ``again``: a row may read an older value also where channels are last."""

    reads: At
    made: list[At] = field(default_factory=list)
    parts: list[At] = field(default_factory=list)
    ends: list[At] = field(default_factory=list)
    whole: int = 0
    again: bool = False

    def add(self, made: At, reads: At, slides: int) -> None:
        """A row made ``made`` of ``reads``, by so many convolutions or pools."""
        if self.ends and self.ends[-1] is reads:
            self.ends.pop()
        self.made.append(made)
        self.ends.append(made)
        self.parts.extend([made] * min(slides, MOST))


def of_tokens(kind: str) -> bool:
    """Whether a published network (timm) of this class has its pixels in a row where channels are
    last: shapes of other networks differ in nothing that counts, but for copies."""
    return kind.lower().startswith(_OF_TOKENS)


def joined(frame: Frame, current: At, want: int) -> At | None:
    """Some of the block's last values that have ``want`` channels together."""
    for values in ([frame.reads, *frame.parts], frame.ends):
        total = 0
        for value in reversed(values[-MOST:]):
            if value.sides == current.sides and value.last == current.last:
                total += value.channels
            if total == want and value is not current:
                return replace(current, channels=want)
    return None


def unclear(layer: Layer, reads: int, found: At) -> Exception:
    text = f"{layer.kind} reads {reads} channels and the rows before it do not make them"
    return fail("no_shapes", f"{text} (they make {found.channels}): print it with torchinfo")


def untold(layer: Layer) -> Exception:
    return fail("no_shapes", f"what {layer.kind} does is in no row: print it with torchinfo")
