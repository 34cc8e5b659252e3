# SPDX-License-Identifier: Apache-2.0
"""What two values become where they meet between rows: a sum, a product, a gate, a pooled shortcut.

Which of them it is follows from shapes, see blocks.
"""

from slurm_coloc.estimate.rebuild.autograd import Value
from slurm_coloc.estimate.rebuild.scope import Scope, Shape, elements
from slurm_coloc.estimate.rebuild.tree import Node


def widens(first: Node, second: Node) -> bool:
    """Two rows of one kind that make more channels of the same: one is the other's gate."""
    one, other = first.layer, second.layer
    alike = one.kind == other.kind and one.inputs == other.inputs and one.outputs == other.outputs
    if not alike or not one.inputs or not one.outputs:
        return False
    return elements(one.outputs[0]) > elements(one.inputs[0])


def pools(shape: Shape, to: Shape) -> bool:
    """The same channels of a whole number of times as many tokens: a shortcut that is pooled."""
    tokens = len(shape) == len(to) == 3 and shape[-1] == to[-1] and shape[0] == to[0]
    return tokens and shape[1] > to[1] and shape[1] % to[1] == 0


def pooled(scope: Scope, x: Value, shape: Shape) -> Value:
    """The largest of some tokens each (Hiera): keeps what it reads and makes."""
    return scope.after(x, scope.run([x], shape, saves_inputs=[x], saves_output=True))


def gated(scope: Scope, made: Value, x: Value) -> Value:
    """The product of one half of ``x`` with what the rows made of the other."""
    both = [x, made]
    return scope.after(made, scope.run(both, made.shape, made.size, saves_inputs=both))


def joined(scope: Scope, current: Value, other: Value, inplace: bool = False) -> Value:
    """Their sum, a new tensor. ``inplace``: ResNets, whose activation comes after the sum, add to
    the first, where no operator saved it: autograd would refuse else."""
    alone = inplace and scope.tape.holders(current.storage) == 1
    result = scope.run([current, other], current.shape, current.size, inplace=alone, through=True)
    scope.drop(current, other)
    return result


def multiplied(scope: Scope, current: Value, other: Value) -> Value:
    """Their product, for which both are kept."""
    both = [current, other]
    result = scope.run(both, current.shape, current.size, saves_inputs=both)
    scope.drop(*both)
    return result
