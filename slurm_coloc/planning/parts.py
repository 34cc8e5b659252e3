# SPDX-License-Identifier: Apache-2.0
"""Cuts a cluster that is too large for one search into parts: the nodes that have room now.

A search over all GPUs would take hours where decisions are wanted in seconds. On a large cluster
that is busy few nodes have room at a time, and only there a job can start.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from slurm_coloc.core.place.steering import Node, Snapshot, Waiting


@dataclass(frozen=True, slots=True)
class Part:
    """``snapshot``: of some nodes, without waiting jobs; ``gpus``: the numbers that its GPUs have
    in the whole."""

    snapshot: Snapshot
    gpus: tuple[int, ...]

    def may_get(self, job: Waiting) -> bool:
        """Whether a job may run on one of its nodes."""
        return not {node.name for node in self.snapshot.nodes}.isdisjoint(job.nodes)


def parts(
    snapshot: Snapshot, jobs: Sequence[Waiting], gpus: int, most: int, turn: int
) -> Iterator[Part]:
    """At most ``most`` parts of at most ``gpus`` GPUs, of the nodes where one of the ``jobs`` could
    start; from the ``turn``-th node on, so that none is left out for ever."""
    firsts, first = [], 0
    for node in snapshot.nodes:
        firsts.append(first)
        first += len(node.devices)
    least = min((job.shards for job in jobs if job.shards), default=None)
    whole = any(not job.shards for job in jobs)
    numbers = [n for n, node in enumerate(snapshot.nodes) if _has_room(node, least, whole)]
    start = next((place for place, n in enumerate(numbers) if n >= turn), 0)
    numbers = numbers[start:] + numbers[:start]
    for _ in range(most):
        taken: list[int] = []
        count = 0
        while numbers and (not taken or count + len(snapshot.nodes[numbers[0]].devices) <= gpus):
            taken.append(numbers.pop(0))
            count += len(snapshot.nodes[taken[-1]].devices)
        if not taken:
            return
        yield _part(snapshot, sorted(taken), firsts)


def _has_room(node: Node, least: int | None, whole: bool) -> bool:
    """Whether a share of ``least`` shards (None: there is none), or a ``whole`` GPU, may begin."""
    return node.open and any(
        not one.whole
        and ((least is not None and one.shards - one.used >= least) or (whole and not one.used))
        for one in node.devices
    )


def _part(snapshot: Snapshot, numbers: Sequence[int], firsts: Sequence[int]) -> Part:
    nodes = tuple(snapshot.nodes[number] for number in numbers)
    names = {node.name for node in nodes}
    gpus = [
        firsts[number] + place
        for number in numbers
        for place in range(len(snapshot.nodes[number].devices))
    ]
    running = tuple(one for one in snapshot.running if one.node in names)
    found = replace(snapshot, nodes=nodes, running=running, waiting=(), plan=())
    return Part(found, tuple(gpus))
