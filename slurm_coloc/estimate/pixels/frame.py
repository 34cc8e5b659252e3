# SPDX-License-Identifier: Apache-2.0
"""Values while shapes are followed, and a block's values as long as it is open."""

from dataclasses import dataclass, field, replace
from math import prod

from slurm_coloc.estimate.lexing import Shape

#: values of a block that a concatenation may have, or that a later row may read
MOST = 64


@dataclass(frozen=True, slots=True)
class At:
    """A value of one sample: ``sides`` () once it is flat. ``last``: channels come last."""

    channels: int
    sides: tuple[int, ...]
    last: bool = False

    @property
    def shape(self) -> Shape:
        """With the sample's leading 1."""
        if self.last:
            return (1, *self.sides, self.channels)
        return (1, self.channels, *self.sides)

    @property
    def pixels(self) -> int:
        """Of one channel."""
        return prod(self.sides)


@dataclass(slots=True)
class Frame:
    """An open block: what it reads and what its rows made. ``parts``: of that what convolutions
    and pools made, ``ends``: what no later row read. ``whole``: what was cut into parts."""

    reads: At
    made: list[At] = field(default_factory=list)
    parts: list[At] = field(default_factory=list)
    ends: list[At] = field(default_factory=list)
    whole: int = 0

    def add(self, made: At, reads: At, slides: int) -> None:
        """A row made ``made`` of ``reads``, by so many convolutions or pools."""
        if self.ends and self.ends[-1] is reads:
            self.ends.pop()
        self.made.append(made)
        self.ends.append(made)
        self.parts.extend([made] * min(slides, MOST))


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
