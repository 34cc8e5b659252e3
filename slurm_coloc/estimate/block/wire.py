# SPDX-License-Identifier: Apache-2.0
"""A SizedStep as one row of integers and back.

In order: sizes (count, then fixed, sample and square of each); workspaces (count, then work, index
of read, index of written, weight, kernel, groups, channels of each); parameters, constants and
inputs (count, then runs of index and times); events (count, then one integer each, whose last three
bits are the kind). A free is written as the shorter of its age (allocations since) and the distance
from the free before: both repeat from layer to layer, so that zlib finds the layers.
"""

from collections.abc import Sequence

from slurm_coloc.estimate.block.traced import Size, SizedEvent, SizedScratch, SizedStep
from slurm_coloc.estimate.lexing import fail
from slurm_coloc.estimate.replay.recording import Work

MAX_TABLE = 1 << 16
MAX_EVENTS = 200_000
MAX_TENSORS = 40_000  # parameters; a model of 1,000 experts in 40 layers would have as many
MAX_SIZE = 2**50  # bytes of one tensor: a thousand times the largest GPU
ALLOCATE, GRADIENT, SCRATCH, AGE, BACK, AHEAD = range(6)


class _Table:
    """Sizes and workspaces in order of their first use."""

    def __init__(self) -> None:
        self.sizes: dict[Size, int] = {}
        self.scratches: dict[SizedScratch, int] = {}

    def size(self, size: Size) -> int:
        return self.sizes.setdefault(size, len(self.sizes))

    def scratch(self, scratch: SizedScratch) -> int:
        self.size(scratch.read)
        self.size(scratch.written)
        return self.scratches.setdefault(scratch, len(self.scratches))


def numbers(step: SizedStep) -> list[int]:
    """The row of integers, all of them from 0 on."""
    table = _Table()
    lists: list[int] = []
    fixed = ([Size(size) for size in sizes] for sizes in (step.parameters, step.constants))
    for sizes in (*fixed, step.inputs):
        lists += _runs([table.size(size) for size in sizes])
    events = _events(step, table)
    row = [len(table.sizes)]
    for size in table.sizes:
        row += size
    row.append(len(table.scratches))
    for scratch in table.scratches:
        read, written = table.sizes[scratch.read], table.sizes[scratch.written]
        row += (int(scratch.work), read, written, *scratch[3:])
    return [*row, *lists, len(events), *events]


def _runs(indices: list[int]) -> list[int]:
    runs: list[list[int]] = []
    for index in indices:
        if runs and runs[-1][0] == index:
            runs[-1][1] += 1
        else:
            runs.append([index, 1])
    return [len(runs), *(number for run in runs for number in run)]


def _events(step: SizedStep, table: _Table) -> list[int]:
    out: list[int] = []
    count = last = 0
    for event in step.events:
        if isinstance(event, Size):
            kind = GRADIENT if count in step.gradients else ALLOCATE
            out.append(table.size(event) << 3 | kind)
            count += 1
        elif isinstance(event, int):
            index = -1 - event
            age, away = count - 1 - index, index - last
            if age <= abs(away):
                out.append(age << 3 | AGE)
            else:
                out.append(abs(away) << 3 | (BACK if away < 0 else AHEAD))
            last = index
        else:
            out.append(table.scratch(event) << 3 | SCRATCH)
    return out


class _Row:
    """The integers in order, each checked as it is taken."""

    def __init__(self, row: Sequence[int]) -> None:
        self._row = row
        self._at = 0

    def take(self, limit: int) -> int:
        """The next integer, from 0 to ``limit``."""
        if self._at >= len(self._row):
            raise fail("damaged", "the recording is cut short")
        value = self._row[self._at]
        if not 0 <= value <= limit:
            raise fail("damaged", "the recording holds a number out of its range")
        self._at += 1
        return value

    def index(self, count: int) -> int:
        """An index below ``count``."""
        return self.take(count - 1)

    def end(self) -> None:
        if self._at != len(self._row):
            raise fail("damaged", "the recording is longer than it says")


def step_of(row: Sequence[int]) -> SizedStep:
    """The step that ``numbers`` wrote. Raises SummaryError damaged, whatever the integers are."""
    taken = _Row(row)
    sizes = [
        Size(taken.take(MAX_SIZE), taken.take(MAX_SIZE), taken.take(MAX_SIZE))
        for _ in range(taken.take(MAX_TABLE))
    ]
    scratches = [_scratch(taken, sizes) for _ in range(taken.take(MAX_TABLE))]
    parameters, constants, inputs = (_tensors(taken, sizes) for _ in range(3))
    events, gradients = _read_events(taken, sizes, scratches)
    taken.end()
    return SizedStep(
        parameters=tuple(_fixed(size) for size in parameters),
        constants=tuple(_fixed(size) for size in constants),
        inputs=tuple(inputs),
        events=tuple(events),
        gradients=frozenset(gradients),
    )


def _scratch(taken: _Row, sizes: list[Size]) -> SizedScratch:
    work = Work(taken.take(len(Work) - 1))
    read, written = (sizes[taken.index(len(sizes))] for _ in range(2))
    weight, kernel, groups, channels = (taken.take(MAX_SIZE) for _ in range(4))
    return SizedScratch(work, read, written, weight, kernel, groups, channels)


def _tensors(taken: _Row, sizes: list[Size]) -> list[Size]:
    found: list[Size] = []
    for _ in range(taken.take(MAX_TENSORS)):
        size = sizes[taken.index(len(sizes))]
        times = taken.take(MAX_TENSORS)
        if len(found) + times > MAX_TENSORS:
            raise fail("damaged", f"the recording has more than {MAX_TENSORS} tensors")
        found += [size] * times
    return found


def _fixed(size: Size) -> int:
    if size.sample or size.square:
        raise fail("damaged", "a parameter of the recording grows with the batch")
    return size.fixed


def _read_events(
    taken: _Row, sizes: list[Size], scratches: list[SizedScratch]
) -> tuple[list[SizedEvent], set[int]]:
    events: list[SizedEvent] = []
    gradients: set[int] = set()
    held: list[bool] = []
    last = 0
    for _ in range(taken.take(MAX_EVENTS)):
        number = taken.take(MAX_SIZE)
        kind, value = number & 7, number >> 3
        if kind in (ALLOCATE, GRADIENT):
            if value >= len(sizes):
                raise fail("damaged", "the recording names a size that it does not have")
            if kind == GRADIENT:
                gradients.add(len(held))
            held.append(True)
            events.append(sizes[value])
        elif kind == SCRATCH:
            if value >= len(scratches):
                raise fail("damaged", "the recording names a workspace that it does not have")
            events.append(scratches[value])
        elif kind in (AGE, BACK, AHEAD):
            if kind == AGE:
                last = len(held) - 1 - value
            else:
                last += value if kind == AHEAD else -value
            if not 0 <= last < len(held) or not held[last]:
                raise fail("damaged", "the recording frees what is not there")
            held[last] = False
            events.append(-1 - last)
        else:
            raise fail("damaged", "the recording has an event of an unknown kind")
    return events, gradients
