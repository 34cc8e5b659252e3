# SPDX-License-Identifier: Apache-2.0
"""What all of a model's operators share: the batch, bytes of an element, and the tape."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from slurm_coloc.estimate.lexing import bounded
from slurm_coloc.estimate.rebuild.autograd import Tape, Value
from slurm_coloc.estimate.summary import Layer

Shape = tuple[int, ...]


def elements(shape: Shape) -> int:
    """Product of the dimensions."""
    return prod(shape)


@dataclass(slots=True)
class Scope:
    """``low``, ``high``: bytes of what autocast lowers and of what it leaves; ``loss``: of what the
    loss computes with. ``weight``: bytes of an element of a parameter and of its gradient.
    ``trained``: the share that is trained of the parameters that no row calls frozen. ``drops``:
    whether Dropout rows drop anything. ``eager``: attention stores its scores, of heads ``head``
    wide where no row tells. ``inplace``: activations that can run in place do, as in vision models.
    ``caches``: keys and values stay until the next step has made its own. ``rotary``: queries and
    keys are turned by their positions. ``hidden``: what rows that were not opened keep, over their
    own output. ``pixels``: of the image that the model reads, 0 without one. ``memory``: what an
    encoder gave out, once a decoder runs; ``crosses``: the attention at hand reads it. ``copied``:
    parameters of rows of which it is known what autocast copies. ``printed``: by print(model),
    which tells what runs in place and no shapes; ``own``: of sequences alone, so that activations
    are as PyTorch makes them. ``checkpoints``: what is run again in the backward
    (rebuild/again)."""

    batch: int
    low: int = 4
    high: int = 4
    loss: int = 4
    weight: int = 4
    trained: float = 1.0
    drops: bool = False
    eager: bool = False
    head: int = 64
    inplace: bool = True
    caches: bool = False
    rotary: bool = False
    hidden: float = 0.0
    pixels: int = 0
    memory: Value | None = None
    crosses: bool = False
    printed: bool = False
    own: bool = False
    checkpoints: str = ""
    tape: Tape = field(default_factory=Tape)
    parameters: list[int] = field(default_factory=list)
    constants: list[int] = field(default_factory=list)
    frozen: int = 0
    copied: int = 0

    def bytes(self, shape: Shape, unit: int | None = None) -> int:
        """Of a tensor of the batch, from its shape for one sample."""
        return bounded(self.batch * (unit or self.low) * prod(shape))

    def unit(self, value: Value) -> int:
        """Bytes of an element of ``value``: operators that autocast leaves alone keep it."""
        if self.high == self.low:
            return self.low
        each = self.batch * prod(value.shape)
        return self.high if each and value.size >= self.high * each else self.low

    def lowered(self, value: Value) -> Value:
        """What autocast gives a convolution or a matrix to read: a copy where the value is not as
        low; with a holder."""
        if self.unit(value) == self.low:
            return self.same(value, value.shape)
        return self.run([value], value.shape, self.bytes(value.shape))

    def lifted(self, value: Value) -> Value:
        """What it gives a normalisation or a softmax to read, likewise."""
        if self.unit(value) == self.high:
            return self.same(value, value.shape)
        return self.run([value], value.shape, self.bytes(value.shape, self.high))

    def weights(self, layer: Layer, bias: int = 0) -> tuple[int, ...]:
        """Bytes of the gradients of a row's parameters. ``bias``: elements of a bias, if there is
        room for one."""
        count = layer.parameters
        if layer.frozen:
            self.frozen += count
            self.constants.append(count * self.weight)
        if not count or layer.frozen:
            return ()
        parts = (count - bias, bias) if 0 < bias < count else (count,)
        self.parameters.extend(parts)
        return tuple(int(part * self.weight * self.trained) for part in parts)

    def copy(self, layer: Layer) -> list[int]:
        """Bytes of the copy that autocast makes of a matrix or a convolution, and that backward
        reads."""
        if self.high == self.low:
            return []
        self.copied += layer.parameters
        return [layer.parameters * self.low]

    def run(
        self, reads: Sequence[Value], shape: Shape, size: int | None = None, **how: Any
    ) -> Value:
        """An operator on the tape, see Tape.operator. ``size``: bytes, else ``shape``'s in the
        widest of what it reads."""
        if size is None:
            wide = self.high > self.low and any(self.unit(one) > self.low for one in reads)
            size = self.bytes(shape, self.high if wide else self.low)
        return self.tape.operator(reads, size, shape, **how)

    def drop(self, *values: Value) -> None:
        """One holder less of each; the last one frees."""
        for value in values:
            self.tape.drop(value.storage)

    def after(self, before: Value, made: Value) -> Value:
        """``made``, when the value that it was made of is no longer needed."""
        self.tape.drop(before.storage)
        return made

    def same(self, x: Value, shape: Shape) -> Value:
        """``x`` itself, or a view of it."""
        self.tape.hold(x.storage)
        return x if x.shape == shape else Value(x.storage, x.size, shape, x.maker)

    def reshaped(self, x: Value, shape: Shape) -> Value:
        """What a function between two modules makes of ``x`` where only the shape is known: a view
        where the elements are as many or one dimension is shorter (chunk, split), else a new
        tensor that nothing is saved for."""
        size = self.bytes(shape, x.size // max(1, self.bytes(x.shape, 1)) or None)
        other = [(a, b) for a, b in zip(x.shape, shape, strict=False) if a != b]
        part = len(shape) == len(x.shape) and len(other) == 1 and 1 < other[0][1] < other[0][0]
        if size == x.size or part:
            return self.run([x], shape, size, view=True)
        return self.run([x], shape, size)
