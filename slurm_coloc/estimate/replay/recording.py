# SPDX-License-Identifier: Apache-2.0
"""What one training step allocates: the form in which both front ends hand it to the replay."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple


class Work(IntEnum):
    """The three convolutions of a training step."""

    FORWARD = 0
    DATA = 1  # gradient of the input
    WEIGHT = 2  # gradient of the weight


class Scratch(NamedTuple):
    """A convolution whose library takes a workspace for as long as it runs.

    ``read``, ``written``, ``weight``: bytes of the forward's input and output and of the weight.
    ``kernel``: elements of one kernel (9 for 3x3). ``channels``: of the output.
    """

    work: Work
    read: int
    written: int
    weight: int
    kernel: int
    groups: int
    channels: int


#: bytes of an allocation; -1 - k: the free of the k-th one (from 0); or a workspace
Event = int | Scratch


class Numbered:
    """Allocations that are put one after another, by their numbers."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.count = 0

    def new(self, size: int) -> int:
        """One more of ``size`` bytes; its number."""
        self.events.append(size)
        self.count += 1
        return self.count - 1

    def free(self, index: int) -> None:
        """Of a number that ``new`` gave."""
        self.events.append(-1 - index)


@dataclass(frozen=True, slots=True)
class Recording:
    """Forward, loss and backward of one step, as bytes.

    ``parameters``: of each tensor that lives as long as the model and is trained, ``constants`` of
    each that is not (frozen weights, buffers). ``inputs``: of a batch, which the loop brings to the
    GPU. ``gradients``: numbers of the allocations that hold gradients, which live until the
    optimizer frees them. Everything else that is not freed in ``events`` (the output, the loss)
    lives until the next step has made the last of its own. ``reached``: share of the trained bytes
    that the backward made a gradient for; below 1 the path through the model is not whole.
    """

    parameters: tuple[int, ...]
    constants: tuple[int, ...]
    inputs: tuple[int, ...]
    events: tuple[Event, ...]
    gradients: frozenset[int]
    reached: float = 1.0

    @property
    def left(self) -> list[int]:
        """Numbers of the allocations that outlive the step and are no gradients."""
        return list(self._left())[::-1]

    def _left(self) -> Iterator[int]:
        """The last first."""
        sizes = [event for event in self.events if isinstance(event, int)]
        frees = [event for event in sizes if event < 0]
        freed = set(frees)
        for at in range(len(sizes) - len(frees) - 1, -1, -1):
            if -1 - at not in freed and at not in self.gradients:
                yield at

    @property
    def loss(self) -> int:
        """The last of those; -1 where there is none. When the next step makes its own, the names of
        all of them have been given away."""
        return next(self._left(), -1)
