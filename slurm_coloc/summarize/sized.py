# SPDX-License-Identifier: Apache-2.0
"""Two recordings of one step at two batch sizes, as one whose sizes grow with the batch."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from itertools import groupby

from slurm_coloc.estimate.block.traced import Size, SizedEvent, SizedScratch, Traced
from slurm_coloc.estimate.replay.recording import Event, Recording, Scratch


@dataclass(frozen=True, slots=True)
class Facts:
    """What a recording does not hold itself; see Traced."""

    batch: int
    precision: str = "fp32"
    optimizer: str = ""
    accumulate: int = 1
    seq_len: int = 0
    models: int = 1
    family: str = "other"
    torch: str = ""
    elements: int = 0
    trainable: int = 0


@dataclass(frozen=True, slots=True)
class Taken:
    """A step as it was recorded with ``batch`` samples."""

    batch: int
    step: Recording


#: a line through zero may be so much above what was recorded
NEAR = 1.15


class _Differs(Exception):
    """The two steps are not one step at two sizes."""


def size_of(one: int, batch: int, other: int, larger: int) -> Size:
    """The size that is ``one`` bytes at ``batch`` and ``other`` at ``larger`` samples. Raises
    _Differs where neither a line nor a square goes through both, or near them."""
    if one == other:
        return Size(one)
    sample, left = divmod(other - one, larger - batch)
    fixed = one - sample * batch
    if not left and sample > 0 and fixed >= 0:
        return Size(fixed, sample)
    square, left = divmod(one, batch * batch)
    if not left and square * larger * larger == other:
        return Size(0, 0, square)
    # Rounded to a grid of the library's own, or one sample less: the line above both, if near.
    sample = max(-(-one // batch), -(-other // larger))
    if other > one and sample * batch <= NEAR * one and sample * larger <= NEAR * other:
        return Size(0, sample)
    raise _Differs


def traced(first: Taken, second: Taken | None, facts: Facts) -> Traced:
    """The recording for a block. It ``scales`` where ``second`` is the same step, larger."""
    if second is not None:
        for one, other in ((first, second), (_ordered(first), _ordered(second))):
            try:
                return _made(facts, one.step, *_joined(one, other), scales=True)
            except _Differs:
                continue
    step = first.step
    events = tuple(_alone(event) for event in step.events)
    # Taken with fewer samples than the job has, it says nothing of the job.
    if first.batch != facts.batch:
        raise ValueError("with other samples its step keeps other tensors: few say nothing of all")
    return _made(facts, step, tuple(Size(size) for size in step.inputs), events, scales=False)


def _ordered(taken: Taken) -> Taken:
    """Frees that follow each other, sorted: autocast drops its copies of the weights in the order
    of their addresses, which is chance, and what is free then is the same."""
    events: list[Event] = []
    for free, group in groupby(taken.step.events, _is_free):
        run = list(group)
        events += sorted(run, reverse=True) if free else run
    return replace(taken, step=replace(taken.step, events=tuple(events)))


def _is_free(event: Event) -> bool:
    return isinstance(event, int) and event < 0


def _alone(event: Event) -> SizedEvent:
    if isinstance(event, int):
        return Size(event) if event >= 0 else event
    return SizedScratch(event.work, Size(event.read), Size(event.written), *event[3:])


def _joined(first: Taken, second: Taken) -> tuple[tuple[Size, ...], tuple[SizedEvent, ...]]:
    one, other = first.step, second.step
    same = (
        one.parameters == other.parameters
        and one.constants == other.constants
        and one.gradients == other.gradients
        and len(one.inputs) == len(other.inputs)
        and len(one.events) == len(other.events)
    )
    if not same:
        raise _Differs

    def each_its_own(a: Scratch, b: Scratch) -> bool:
        """Weights made for each sample: the batch is in the groups."""
        whole = a.groups % first.batch == 0 and b.groups % second.batch == 0
        alike = a.groups // first.batch == b.groups // second.batch
        return whole and alike and (a.work, a.kernel) == (b.work, b.kernel)

    def size(a: int, b: int) -> Size:
        return size_of(a, first.batch, b, second.batch)

    def event(a: Event, b: Event) -> SizedEvent:
        if isinstance(a, Scratch) and isinstance(b, Scratch):
            if (a.work, a[3:]) != (b.work, b[3:]) and not each_its_own(a, b):
                raise _Differs
            read, written = size(a.read, b.read), size(a.written, b.written)
            return SizedScratch(a.work, read, written, *a[3:])
        if isinstance(a, Scratch) or isinstance(b, Scratch) or (a < 0) != (b < 0):
            raise _Differs
        if a < 0:
            if a != b:
                raise _Differs
            return a
        return size(a, b)

    inputs = tuple(size(a, b) for a, b in zip(one.inputs, other.inputs, strict=True))
    return inputs, tuple(event(a, b) for a, b in zip(one.events, other.events, strict=True))


def _made(
    facts: Facts,
    step: Recording,
    inputs: tuple[Size, ...],
    events: tuple[SizedEvent, ...],
    *,
    scales: bool,
) -> Traced:
    return Traced(
        step.parameters,
        step.constants,
        inputs,
        events,
        step.gradients,
        scales=scales,
        **asdict(facts),
    )
