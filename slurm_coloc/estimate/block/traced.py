# SPDX-License-Identifier: Apache-2.0
"""A recorded step whose sizes are functions of the batch."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from slurm_coloc.estimate.lexing import bounded, fail
from slurm_coloc.estimate.replay.recording import Event, Recording, Scratch, Work


class Size(NamedTuple):
    """Bytes: fixed + sample * batch + square * batch * batch (contrastive losses)."""

    fixed: int
    sample: int = 0
    square: int = 0

    def at(self, batch: int) -> int:
        """Bytes at ``batch`` samples. Raises number_out_of_range."""
        return bounded(self.fixed + batch * (self.sample + batch * self.square))


class SizedScratch(NamedTuple):
    """A Scratch whose input and output grow with the batch; see recording.Scratch."""

    work: Work
    read: Size
    written: Size
    weight: int
    kernel: int
    groups: int
    channels: int

    def at(self, batch: int) -> Scratch:
        """Of ``batch`` samples. Raises number_out_of_range."""
        return Scratch(self.work, self.read.at(batch), self.written.at(batch), *self[3:])


#: an allocation; -1 - k: the free of the k-th one; or a workspace
SizedEvent = Size | int | SizedScratch


@dataclass(frozen=True, slots=True)
class SizedStep:
    """A recording.Recording for any batch; parameters and constants do not depend on it."""

    parameters: tuple[int, ...]
    constants: tuple[int, ...]
    inputs: tuple[Size, ...]
    events: tuple[SizedEvent, ...]
    gradients: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced(SizedStep):
    """One training step of one process, for any batch size where it ``scales``.

    ``batch``: samples that it was recorded with. ``optimizer``: one of core's OPTIMIZERS, "" where
    none was seen. ``accumulate``: steps of the model for one of the optimizer. ``seq_len``: tokens
    a sample, 0 where there are none. ``models``: summaries of the text that it stands for.
    ``elements``, ``trainable``: parameters of the model, and those that are trained.
    """

    batch: int
    scales: bool
    precision: str
    optimizer: str
    accumulate: int
    seq_len: int
    models: int
    family: str
    torch: str
    elements: int
    trainable: int

    def at(self, batch: int) -> Recording:
        """The step with ``batch`` samples. Raises SummaryError other_batch, number_out_of_range."""
        if batch != self.batch and not self.scales:
            raise fail(
                "other_batch",
                f"the step was recorded at a batch size of {self.batch} and is another one at"
                f" {batch}: run coloc summarize with that batch size",
            )
        events: list[Event] = []
        known: dict[Size | SizedScratch, Event] = {}
        for event in self.events:
            if isinstance(event, int):
                events.append(event)
                continue
            made = known.get(event)
            if made is None:
                made = known[event] = event.at(batch)
            events.append(made)
        return Recording(
            parameters=self.parameters,
            constants=self.constants,
            inputs=tuple(size.at(batch) for size in self.inputs),
            events=tuple(events),
            gradients=self.gradients,
        )


def joined(parts: tuple[Traced, ...]) -> Traced | None:
    """Several recordings of one text: models that train in one process, one after the other in
    each step. None where they disagree on what there is one of (batch, precision, optimizer)."""
    if len(parts) < 2:
        return parts[0] if parts else None
    first = parts[0]
    same = {(p.batch, p.precision, p.optimizer, p.accumulate, p.seq_len) for p in parts}
    if len(same) > 1:
        return None
    events: list[SizedEvent] = []
    gradients: set[int] = set()
    base = 0
    for part in parts:
        for event in part.events:
            events.append(event - base if isinstance(event, int) else event)
        gradients.update(index + base for index in part.gradients)
        base += sum(1 for event in part.events if isinstance(event, Size))
    return replace(
        first,
        scales=all(p.scales for p in parts),
        models=sum(p.models for p in parts),
        elements=bounded(sum(p.elements for p in parts)),
        trainable=bounded(sum(p.trainable for p in parts)),
        parameters=tuple(size for p in parts for size in p.parameters),
        constants=tuple(size for p in parts for size in p.constants),
        inputs=tuple(size for p in parts for size in p.inputs),
        events=tuple(events),
        gradients=frozenset(gradients),
    )
