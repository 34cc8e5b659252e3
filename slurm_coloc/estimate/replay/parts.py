# SPDX-License-Identifier: Apache-2.0
"""What the memory of a training is taken by, when its tensors hold most."""

from bisect import bisect_right
from collections.abc import Sequence
from enum import StrEnum

from slurm_coloc.estimate.replay.allocator import MIB


class Part(StrEnum):
    """What an allocation is for, in the order in which people are shown it."""

    CONTEXT = "context"  # of CUDA and its libraries, outside of the allocator
    WEIGHTS = "weights"  # that are trained
    KEPT = "frozen weights, buffers, copies"
    STATES = "optimizer states"
    GRADIENTS = "gradients"
    ACTIVATIONS = "activations"  # and the batch, and what backward makes and lets go of
    STEP = "optimizer step"  # its temporary tensors
    WORKSPACE = "workspaces"  # of cuDNN and cuBLAS
    REST = "allocator"  # rounding, free blocks that it keeps, temporaries inside kernels


class Marks:
    """Which allocations, by their numbers in a training's events, are for what."""

    def __init__(self) -> None:
        self._since: list[int] = [0]
        self._parts: list[Part] = [Part.ACTIVATIONS]
        self.gradients: list[int] = []
        self.scratch: list[int] = []

    def begin(self, number: int, part: Part) -> None:
        """Allocations from ``number`` on are for ``part``."""
        self._since.append(number)
        self._parts.append(part)

    def part(self, number: int) -> Part:
        """Of a number that is neither a gradient's nor a workspace's."""
        return self._parts[bisect_right(self._since, number) - 1]


def at_peak(events: Sequence[int], marks: Marks) -> dict[Part, int]:
    """Bytes by part where ``events`` (see allocator.replay) hold most at once."""
    sizes: list[int] = []
    live = peak = end = 0
    for position, event in enumerate(events):
        if event >= 0:
            sizes.append(event)
            live += event
            if live > peak:
                peak, end = live, position + 1
        else:
            live -= sizes[-1 - event]
    gradients, scratch = frozenset(marks.gradients), frozenset(marks.scratch)
    held: dict[Part, int] = {}
    parts: list[Part] = []
    for event in events[:end]:
        number = len(parts) if event >= 0 else -1 - event
        if event >= 0:
            if number in gradients:
                parts.append(Part.GRADIENTS)
            elif number in scratch:
                parts.append(Part.WORKSPACE)
            else:
                parts.append(marks.part(number))
        part = parts[number]
        held[part] = held.get(part, 0) + (event if event >= 0 else -sizes[number])
    return {part: size for part, size in held.items() if size}


def in_mib(held: dict[Part, int], memory_mib: int, context_mib: int) -> dict[str, int]:
    """``held`` (bytes) and what is left of ``memory_mib`` as MiB by the parts' names, those without
    any left out; they add up to ``memory_mib``."""
    found = {Part.CONTEXT: min(context_mib, memory_mib)}
    left = memory_mib - found[Part.CONTEXT]
    for part in Part:
        if part in (Part.CONTEXT, Part.REST):
            continue
        found[part] = min(left, round(held.get(part, 0) / MIB))
        left -= found[part]
    found[Part.REST] = left
    return {str(part): mib for part, mib in found.items() if mib}
