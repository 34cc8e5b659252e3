# SPDX-License-Identifier: Apache-2.0
"""A model's forward and backward as the allocations that PyTorch's autograd would make.

Operators are put on a tape in the order of execution; each states what it reads, makes and saves
for its gradient. A storage is freed when its last holder drops it: a name in the model's code
(`hold`, `drop`) or an operator that saved it. The backward runs the operators in reverse: a
gradient is freed when the operator that made its tensor has used it, and two gradients of one
tensor are summed in place if nothing else holds the first (torch/csrc/autograd/input_buffer.cpp).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from slurm_coloc.errors import SummaryError
from slurm_coloc.estimate.lexing import fail
from slurm_coloc.estimate.replay.recording import Event, Scratch, Work

#: a bound on the work, some four times what the largest timm model needs
MAX_EVENTS = 80_000


@dataclass(slots=True, eq=False)
class Value:
    """A tensor: its storage (number of an allocation), bytes, shape, and the operator that made it
    (None: a leaf, which needs no gradient)."""

    storage: int
    size: int
    shape: tuple[int, ...]
    maker: "Operator | None" = None


class Segment(Protocol):
    """Operators that saved nothing in the forward (rebuild/again)."""

    def gradient_comes(self) -> None:
        """An operator of them is about to make its gradients."""
        ...

    def passed(self, operator: "Operator") -> None:
        """The backward has left ``operator`` behind."""
        ...


@dataclass(slots=True, eq=False)
class Operator:
    """One step of the tape. ``reads``: inputs that get a gradient. ``through``: the gradient that
    comes is handed on as it is (sums, views), ``parts``: each gets a part of it, which is a view.
    ``size``: bytes of the result. ``weights``: bytes of the parameters' gradients. ``expanded``:
    they come as large as the result and are summed after it."""

    reads: Sequence[Value]
    saved: list[int]
    size: int
    weights: Sequence[int] = ()
    through: bool = False
    parts: bool = False
    expanded: bool = False
    scratch: Sequence[Scratch] = ()
    gradient: int | None = None
    segment: Segment | None = None


def _too_many() -> SummaryError:
    return fail("too_many_layers", "the model has too many layers to be replayed")


@dataclass(slots=True)
class Tape:
    """See the module."""

    events: list[Event] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    _holders: list[int] = field(default_factory=list)
    _sizes: list[int] = field(default_factory=list)
    _gradients: list[int] = field(default_factory=list)
    _cached: list[int] = field(default_factory=list)
    _calls: int = 0

    def call(self) -> None:
        """A row is run, which may allocate nothing. Raises SummaryError too_many_layers."""
        self._calls += 1
        if self._calls > MAX_EVENTS:
            raise _too_many()

    def allocate(self, size: int) -> int:
        """A storage with one holder. Raises SummaryError too_many_layers, and no_replay for a size
        below zero: a rule took more of a row's parameters than it has."""
        if size < 0:
            raise fail("no_replay", "the parameters of the summary's rows do not fit together")
        if len(self.events) > MAX_EVENTS:
            raise _too_many()
        self.events.append(size)
        self._sizes.append(size)
        self._holders.append(1)
        return len(self._holders) - 1

    def hold(self, storage: int) -> None:
        """One more holder; storages below 0 are the batch's and the model's own."""
        if storage >= 0:
            self._holders[storage] += 1

    def drop(self, storage: int) -> None:
        """One holder less; the last one frees."""
        if storage >= 0:
            self._holders[storage] -= 1
            if not self._holders[storage]:
                self.events.append(-1 - storage)

    def alive(self, storage: int) -> bool:
        """Whether it has a holder."""
        return storage < 0 or self._holders[storage] > 0

    def holders(self, storage: int) -> int:
        """Number of its holders; 2 for a storage that is not of the tape."""
        return self._holders[storage] if storage >= 0 else 2

    @property
    def count(self) -> int:
        """Number of storages so far."""
        return len(self._holders)

    @property
    def gradients(self) -> frozenset[int]:
        """Allocations that hold the parameters' gradients."""
        return frozenset(self._gradients)

    @property
    def gradient_bytes(self) -> int:
        """Of all of them."""
        return sum(self._sizes[index] for index in self._gradients)

    def gradient(self, size: int) -> None:
        """One more of ``size`` bytes, that no operator made."""
        self._gradients.append(self.allocate(size))

    def operator(
        self,
        reads: Sequence[Value],
        size: int,
        shape: tuple[int, ...],
        *,
        saves_inputs: Sequence[Value] = (),
        saves_output: bool = False,
        saves: Sequence[int] = (),
        copies: Sequence[int] = (),
        weights: Sequence[int] = (),
        inplace: bool = False,
        view: bool = False,
        through: bool = False,
        parts: bool = False,
        expanded: bool = False,
        scratch: Sequence[Scratch] = (),
    ) -> Value:
        """Run one. ``size``: bytes of the result, which takes the storage of the first input where
        it is ``inplace`` or a ``view``. ``saves``: bytes of further tensors that it makes and saves
        (masks, indices), ``copies``: of its weights, which autocast keeps until the forward is
        over where they are trained. Where no gradient is asked for, of what it reads or of its
        weights, it saves nothing, and neither does what comes after it."""
        if inplace or view:
            storage = reads[0].storage
            self.hold(storage)
        else:
            storage = self.allocate(size)
        later: list[Scratch] = []
        for work in scratch:
            (self.events if work.work is Work.FORWARD else later).append(work)
        asked = [value for value in reads if value.maker is not None]
        if not asked and not any(weights):
            for more in (*saves, *copies):
                self.drop(self.allocate(more))
            return Value(storage, size, shape)
        kept = [value.storage for value in saves_inputs]
        if saves_output:
            kept.append(storage)
        for index in kept:
            self.hold(index)
        for more in saves:
            kept.append(self.allocate(more))
        for more in copies:
            kept.append(self.allocate(more))
            if any(weights):
                self.hold(kept[-1])
                self._cached.append(kept[-1])
        made = Operator(asked, kept, size, weights, through or view, parts, expanded, later)
        self.operators.append(made)
        return Value(storage, size, shape, made)

    def backward(self, of: Value) -> None:
        """The gradients of everything that led to ``of``; none where nothing is trained."""
        if of.maker is None:
            return
        for index in self._cached:
            self.drop(index)
        of.maker.gradient = self.allocate(of.size)
        for made in reversed(self.operators):
            if made.gradient is not None:
                if made.segment:
                    made.segment.gradient_comes()
                self._step(made, made.gradient)
                made.gradient = None
            for index in made.saved:
                self.drop(index)
            if made.segment:
                made.segment.passed(made)
        self.operators.clear()

    def _step(self, made: Operator, gradient: int) -> None:
        given: list[int] = []
        for value in made.reads:
            if made.parts or (made.through and value.size == made.size):
                self.hold(gradient)
                given.append(gradient)
            else:
                given.append(self.allocate(value.size))
        for work in made.scratch:
            if work.work is Work.DATA and given:
                self.events.append(work)
        whole = self.allocate(made.size) if made.expanded else -1
        for size in made.weights:
            self.gradient(size)
        for work in made.scratch:
            if work.work is Work.WEIGHT and made.weights:
                self.events.append(work)
        self.drop(gradient)
        self.drop(whole)
        for value, own in zip(made.reads, given, strict=True):
            assert value.maker is not None
            self._give(value.maker, own, value.size)

    def _give(self, to: Operator, own: int, size: int) -> None:
        before = to.gradient
        if before is None:
            to.gradient = own
        elif self._holders[before] == 1 and self._sizes[before] == size:
            self.drop(own)
        else:
            to.gradient = self.allocate(size)
            self.drop(before)
            self.drop(own)
