# SPDX-License-Identifier: Apache-2.0
"""Concatenations and stacks, which no summary shows: a row reads more channels than the one before
it made, and those of earlier rows make up the rest.

The gradients of what was concatenated are views of the one gradient, which stays until the last of
them was used (torch/csrc/autograd/FunctionsManual.cpp: cat_tensors_backward narrows).
"""

from dataclasses import dataclass, field

from slurm_coloc.estimate.kinds import Role
from slurm_coloc.estimate.rebuild.autograd import Value
from slurm_coloc.estimate.rebuild.scope import Scope, Shape
from slurm_coloc.estimate.summary import Layer

#: rows before this one that a concatenation may have, and that a row may read a part of
MOST, MOST_FOR_PART = 64, 8


@dataclass(slots=True)
class Past:
    """What the rows of one container made, in order; a value here has no holder for that.
    ``ends``: those that the next row did not read. ``left``: of these, what the container's code
    needs later, with a holder each. ``passed``: what the containers of a flat table gave out.
    ``missed``: rows without inputs whose concatenation was not found."""

    made: list[Value] = field(default_factory=list)
    ends: list[Value] = field(default_factory=list)
    left: list[Value] = field(default_factory=list)
    passed: list[Value] = field(default_factory=list)
    missed: int = 0

    def add(self, value: Value, reads: Value) -> None:
        """``value`` was made of ``reads``."""
        if self.ends and self.ends[-1] is reads:
            self.ends.pop()
        self.made.append(value)
        self.ends.append(value)


def gathered(scope: Scope, past: Past, frame: list[Value], shape: Shape) -> Value | None:
    """The concatenation along one dimension that gives ``shape``; None where the values at hand do
    not make it up."""
    last = past.made[-1] if past.made else frame[-1]
    if _differs(shape, last.shape) is not None:
        return None  # a part of the last one
    for values in (past.passed, past.made, past.ends, _inner_first(past)):
        found = _parts([*frame[-1:], *values[-MOST:]], shape, values is past.passed)
        if found:
            return scope.run(found, shape, parts=True)
    return _beside_pool(scope, past, frame[-1], shape)


def branches(scope: Scope, past: Past, shape: Shape) -> Value | None:
    """The concatenation of three or more branches, where a block gives out as much as it reads."""
    for values in (past.ends, _inner_first(past)):
        if len(found := _parts(values, shape)) > 2:
            return scope.run(found, shape, parts=True)
    return None


def _inner_first(past: Past) -> list[Value]:
    """Inception's last blocks: two convolutions read one value, and it is taken for a chain."""
    return [*(value for value in past.made if value not in past.ends), *past.ends]


def _beside_pool(scope: Scope, past: Past, x: Value, shape: Shape) -> Value | None:
    """The concatenation of what the rows made with what a function pools of the block's input
    (Inception's reductions)."""
    ends = [value for value in past.ends if value.shape[2:] == shape[2:]]
    left = shape[1] - sum(value.shape[1] for value in ends) if len(shape) == 4 else 0
    if not ends or len(x.shape) != 4 or left != x.shape[1] or x.shape[2:] <= shape[2:]:
        return None
    small = (shape[0], left, *shape[2:])
    pooled = scope.run([x], small, saves_inputs=[x], saves=[2 * scope.bytes(small, 4)])
    made = scope.run([*ends, pooled], shape, parts=True)
    scope.drop(pooled)
    return made


def _parts(values: list[Value], shape: Shape, skips: bool = False) -> list[Value]:
    """The last values that make up ``shape``. ``skips``: one that is too large for what is left is
    none of them (VoVNet reduces what its block reads before the first of its convolutions)."""
    found: list[Value] = []
    where = side = 0
    for value in reversed(values):
        other = _differs(value.shape, shape)
        if other is None or (found and other != where):
            continue
        if any(value.storage == one.storage for one in found):
            continue  # the same tensor, by the name of an Identity
        if skips and side + value.shape[other] > shape[other]:
            continue
        where, side = other, side + value.shape[other]
        found.append(value)
        if side >= shape[where]:
            break
    return found[::-1] if len(found) > 1 and side == shape[where] else []


def _differs(shape: Shape, whole: Shape) -> int | None:
    """The one dimension in which ``shape`` is shorter."""
    if len(shape) != len(whole):
        return None
    other = [at for at, (a, b) in enumerate(zip(shape, whole, strict=True)) if a != b]
    return other[0] if len(other) == 1 and shape[other[0]] < whole[other[0]] else None


def split(scope: Scope, past: Past, current: Value, layer: Layer, shape: Shape) -> Value | None:
    """``shape`` as a part of the last value, or of an earlier one that still has a holder. None
    where it is not a part, or where the row gives the last value's shape: a shortcut."""
    if current.shape in layer.outputs:
        return None
    for value in (current, *reversed(past.made[-MOST_FOR_PART:])):
        part = _differs(_like(shape, value.shape), value.shape) is not None
        if part and (value is current or scope.tape.alive(value.storage)):
            return scope.run([value], shape, view=True)
    return None


def _like(shape: Shape, whole: Shape) -> Shape:
    """``shape`` with its channels where ``whole`` has them."""
    if len(shape) == len(whole) == 4 and shape[2:] == whole[1:3]:
        return (shape[0], *shape[2:], shape[1])
    if len(shape) == len(whole) == 4 and shape[1:3] == whole[2:]:
        return (shape[0], shape[3], *shape[1:3])
    return shape


def stacked(scope: Scope, past: Past, layer: Layer) -> Value | None:
    """Several values of one shape in a new dimension, as the row reads them (selective kernels)."""
    if layer.role is not Role.BLOCK or not layer.inputs or not past.made:
        return None
    shape = layer.inputs[0]
    if len(shape) < 4:
        return None
    last = past.made[-1].shape
    if len(shape) != len(last) + 1 or shape[2:] != last[1:] or not 1 < shape[1] <= len(past.made):
        return None
    values = past.made[-shape[1] :]
    if any(value.shape != last for value in values):
        return None
    return scope.run(values, shape, parts=True)


def weighed(scope: Scope, stack: Value, weights: Value, shape: Shape) -> Value:
    """The sum of a stack's values, each times its weight."""
    product = scope.run([stack, weights], stack.shape, stack.size, saves_inputs=[stack, weights])
    return scope.after(product, scope.run([product], shape))
