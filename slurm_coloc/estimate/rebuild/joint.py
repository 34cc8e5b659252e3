# SPDX-License-Identifier: Apache-2.0
"""Blocks whose attention and feed-forward share their first matrix (Dehghani et al. 2023, arXiv
2302.05442; timm's ParallelScalingBlock): its result is split into queries, keys, values and the
hidden part, which are views of it; what both make is summed or goes through one matrix."""

from dataclasses import dataclass
from itertools import pairwise

from slurm_coloc.estimate.kinds import Role
from slurm_coloc.estimate.rebuild.autograd import Value
from slurm_coloc.estimate.rebuild.leaves import leaf
from slurm_coloc.estimate.rebuild.product import Sizes, fused
from slurm_coloc.estimate.rebuild.scope import Scope
from slurm_coloc.estimate.rebuild.tree import Node


@dataclass(frozen=True, slots=True)
class Joint:
    """Rows before the first matrix, with it; between it and the activation; the activation; the
    last matrices; what comes after. ``hidden``: width of the feed-forward."""

    before: tuple[Node, ...]
    norms: tuple[Node, ...]
    act: Node
    last: tuple[Node, ...]
    rest: tuple[Node, ...]
    hidden: int


def joint(node: Node) -> Joint | None:
    """The rows of such a block; None for others."""
    rows = node.children
    if len(rows) < 4:
        return None
    wide = [i for i, row in enumerate(rows) if row.layer.role is Role.LINEAR]
    acts = [i for i, row in enumerate(rows) if row.layer.role in (Role.ACT_IN, Role.ACT_OUT)]
    if len(wide) not in (2, 3) or len(acts) != 1 or not wide[0] < acts[0] < wide[1]:
        return None
    if any(b != a + 1 for a, b in pairwise(wide[1:])):
        return None
    if not node.layer.outputs or not all(rows[i].layer.outputs for i in (*wide, *acts)):
        return None
    width, hidden = node.layer.outputs[0][-1], rows[acts[0]].layer.outputs[0][-1]
    if rows[wide[0]].layer.outputs[0][-1] != 3 * width + hidden:
        return None
    if sum(rows[i].layer.parameters // width for i in wide[1:]) not in range(
        width + hidden, width + hidden + len(wide)
    ):
        return None
    between = (row for row in rows[wide[0] + 1 : acts[0]] if row.layer.role is Role.NORM)
    return Joint(
        tuple(rows[: wide[0] + 1]),
        tuple(between),
        rows[acts[0]],
        tuple(rows[i] for i in wide[1:]),
        tuple(rows[wide[-1] + 1 :]),
        hidden,
    )


def run_joint(scope: Scope, node: Node, block: Joint, x: Value) -> Value:
    """Such a block on ``x``, with its sum."""
    scope.tape.hold(x.storage)
    whole = _in_turn(scope, block.before, x)
    parts = [
        scope.run(
            [whole], x.shape, x.size, saves_inputs=[whole], weights=scope.weights(row.layer),
            saves=[scope.bytes((x.size // scope.batch // scope.low // 64,), 4)],
        )
        for row in block.norms
    ]  # fmt: skip
    attended = fused(scope, [*parts, whole], Sizes(x.size, x.size, x.size, x.size, x.shape))
    shape = (*x.shape[:-1], block.hidden)
    if node.layer.parameters:  # a bias of its own
        hidden = scope.run([whole], shape, weights=scope.weights(node.layer))
    else:
        hidden = scope.run([whole], shape, view=True)
    scope.drop(*parts, whole)
    hidden = scope.after(hidden, leaf(scope, block.act.layer, hidden))
    if len(block.last) == 1:
        both = (*x.shape[:-1], block.hidden + x.shape[-1])
        made = scope.run([attended, hidden], both, parts=True)
        made = scope.after(made, leaf(scope, block.last[0].layer, made))
    else:
        pairs = zip(block.last, (attended, hidden), strict=True)
        one, other = (leaf(scope, row.layer, value) for row, value in pairs)
        made = scope.run([one, other], x.shape, x.size, through=True)
        scope.drop(one, other)
    scope.drop(attended, hidden)
    made = scope.after(made, _in_turn(scope, block.rest, made))
    made = scope.after(made, scope.run([x, made], x.shape, x.size, through=True))
    scope.drop(x)
    return made


def _in_turn(scope: Scope, rows: tuple[Node, ...], x: Value) -> Value:
    made = scope.same(x, x.shape)
    for row in rows:
        made = scope.after(made, leaf(scope, row.layer, made))
    return made
