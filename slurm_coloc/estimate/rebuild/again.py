# SPDX-License-Identifier: Apache-2.0
"""Gradient checkpointing (Chen et al. 2016, arXiv 1604.06174): a block keeps what it read alone,
and runs once more before its gradients are made (torch/utils/checkpoint.py).

Which blocks a script recomputes is in no summary. transformers recomputes the layers of a stack,
timm and torchvision the blocks of a stage: rows of one class, one after another, that have rows
below them or could have. Some of timm's recompute whole stages (ByobNet), which keeps more.
"""

import re
from collections.abc import Sequence

from slurm_coloc.estimate.kinds import Role
from slurm_coloc.estimate.rebuild.autograd import Operator, Tape, Value
from slurm_coloc.estimate.rebuild.tree import Node, unlisted
from slurm_coloc.estimate.replay.recording import Event

#: what is recomputed: each block, or each stage of them
BLOCKS, STAGES = "blocks", "stages"
_STAGE = re.compile(r"(sequential|stage)\Z", re.IGNORECASE)
#: what holds blocks and is no block itself
_HOLDS = re.compile(r"(sequential|modulelist|stage|encoder|decoder|stack|model)\Z", re.IGNORECASE)


def recomputed(rows: list[Node], place: int, what: str = BLOCKS) -> bool:
    """Whether the row at ``place`` is recomputed. ``what``: BLOCKS, STAGES, "" for nothing."""
    row = rows[place]
    layer = row.layer
    if what == STAGES and _STAGE.search(layer.kind):
        inner = unlisted(row.children)
        return any(recomputed(inner, each) for each in range(len(inner)))
    if not what:
        return False
    # A row without rows below it is a block that a depth limit closed, or, in a flat table, one
    # that stands after its rows.
    closed = layer.role is Role.BLOCK and layer.leaf and layer.parameters > 0
    if _HOLDS.search(layer.kind) or not (closed or _layers(row) > 1):
        return False
    beside = rows[max(0, place - 1) : place] + rows[place + 1 : place + 2]
    return row.times > 1 or any(one.layer.kind == layer.kind for one in beside)


def _layers(row: Node) -> int:
    """Matrices and convolutions below a row. A stem's rows of one each are not recomputed."""
    own = row.layer.role in (Role.CONV, Role.LINEAR) and not row.children
    return own + sum(map(_layers, row.children))


def classes(nodes: list[Node]) -> list[str]:
    """Of the blocks that are recomputed below these rows."""
    found: dict[str, None] = {}
    rows = unlisted(nodes)
    for place, row in enumerate(rows):
        if recomputed(rows, place):
            found[row.layer.kind] = None
        else:
            found |= dict.fromkeys(classes(row.children))
    return list(found)


class Recomputed:
    """A block on the tape, from before its first operator. ``x``: what it reads, which is kept."""

    def __init__(self, tape: Tape, x: Value) -> None:
        self._tape = tape
        self._read = x.storage
        self._first = tape.count
        self._begin = len(tape.events)
        self._operators = len(tape.operators)
        self._events: Sequence[Event] = ()
        self._saved: dict[Operator, list[int]] = {}
        self._outputs: list[int] = []

    def forward_over(self) -> None:
        """Let go of what its operators saved."""
        tape = self._tape
        self._events = tuple(tape.events[self._begin :])
        mine = tape.operators[self._operators :]
        if not mine:
            return
        tape.hold(self._read)
        for one in mine:
            one.segment = self
            self._saved[one] = [index for index in one.saved if index >= self._first]
            one.saved = [index for index in one.saved if index < self._first]
            for index in self._saved[one]:
                tape.drop(index)

    def gradient_comes(self) -> None:
        """The forward once more, at the first gradient."""
        tape, events = self._tape, self._events
        self._events = ()
        where: list[int] = []
        gone: set[int] = set()
        for event in events:
            if not isinstance(event, int):
                tape.events.append(event)
            elif event >= 0:
                where.append(tape.allocate(event))
            elif (own := -1 - event - self._first) >= 0:
                tape.drop(where[own])
                gone.add(own)
        if not events:
            return
        needed: set[int] = set()
        for operator, saved in self._saved.items():
            for index in saved:
                needed.add(index - self._first)
                operator.saved.append(where[index - self._first])
                tape.hold(operator.saved[-1])
        for own, index in enumerate(where):
            if own in needed:
                tape.drop(index)
            elif own not in gone:
                self._outputs.append(index)

    def passed(self, operator: Operator) -> None:
        """At the block's first operator its input and its result go."""
        if operator is next(iter(self._saved)):
            self._tape.drop(self._read)
            for index in self._outputs:
                self._tape.drop(index)
