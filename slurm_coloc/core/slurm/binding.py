# SPDX-License-Identifier: Apache-2.0
"""Finds what a waiting job lacks: the short resources of the node that comes nearest.

Slurm only says ``Resources``. Here the job's need is compared with the free resources of every node
of its partitions, per GPU where Slurm shows the use per GPU.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from slurm_coloc.core.slurm.cluster import features_fit
from slurm_coloc.core.slurm.hosts import in_nodes


class Resource(StrEnum):
    """What a node may lack."""

    SHARDS = "shards"
    GPU = "gpu"  # an unused whole one
    CPUS = "cpus"
    MEMORY = "memory"  # the host's, in MiB


@dataclass(frozen=True, slots=True)
class Need:
    """The job's request on one node; ``shards`` are those of each of ``shared_gpus`` GPUs. The node
    lists and the constraint are the owner's words, "" where there are none."""

    cpus: int = 1
    memory_mib: int = 0
    shards: int = 0
    gpus: int = 0
    gpu_type: str | None = None
    shared_gpus: int = 1
    req_nodes: str = ""
    exc_nodes: str = ""
    features: str = ""

    def may_get(self, node: "NodeUse") -> bool:
        """Whether the owner's lists and constraint leave this node."""
        if in_nodes(self.exc_nodes, node.name) or not features_fit(self.features, node.features):
            return False
        return not self.req_nodes or in_nodes(self.req_nodes, node.name)


@dataclass(frozen=True, slots=True)
class Gpu:
    """The use of one GPU: shards taken and offered, or taken whole."""

    shards_used: int
    shards: int
    whole: bool = False

    @property
    def shards_free(self) -> int:
        """Shards that another job may take here."""
        return 0 if self.whole else max(0, self.shards - self.shards_used)

    @property
    def unused(self) -> bool:
        """Whether a whole-GPU job may take it."""
        return not self.whole and self.shards_used == 0


@dataclass(frozen=True, slots=True)
class NodeUse:
    """A node's resources and their use. ``gpus`` is () without GPUs.

    Where Slurm does not show the use per GPU (before 24.11) ``spread`` is False and ``gpus``
    assumes that each job's shards are on the first GPU where they fit.
    """

    name: str
    partitions: tuple[str, ...]
    usable: bool
    cpus: int
    cpus_used: int
    memory_mib: int
    memory_used_mib: int
    gpu_type: str | None = None
    gpus: tuple[Gpu, ...] = ()
    spread: bool = True
    devices: tuple[str, ...] = ()  # gres type of each GPU where each has its own
    extra: str = ""  # the node's Extra, as it stands
    features: tuple[str, ...] = ()
    held_back: bool = False  # reserved, or in maintenance: not for everybody
    owner_uid: int | None = None  # whose jobs alone it takes now (ExclusiveUser)

    def of_type(self, kind: str | None) -> tuple[Gpu, ...]:
        """Its GPUs of a gres type: all, or the one with that name; None: of any type."""
        if kind in self.devices:
            place = self.devices.index(kind or "")
            return self.gpus[place : place + 1]
        return self.gpus if kind in (None, self.gpu_type) else ()


@dataclass(frozen=True, slots=True)
class Short:
    """One short resource: needed, free and in total; shards are those on each of ``gpus`` GPUs."""

    resource: Resource
    needed: int
    free: int
    total: int
    gpus: int = 1

    @property
    def never(self) -> bool:
        """Whether the node could not give it even when it is empty."""
        return self.needed > self.total


@dataclass(frozen=True, slots=True)
class Binding:
    """What a job lacks. ``node``: the nearest node (None: the job may get no node); ``shorts``
    is empty where the job would fit there now, and jobs before it are the reason. ``apart``: the
    node takes the jobs of another user alone, as long as one of them runs there."""

    node: str | None
    shorts: tuple[Short, ...] = ()
    possible: bool = True
    apart: bool = False


def packed(jobs: Iterable[int], per_gpu: int, whole: int, gpus: int) -> tuple[Gpu, ...]:
    """GPUs of a node where only the jobs' shards are known: each job on the first GPU where it
    fits, as Slurm places them by default; whole GPUs from the last one on."""
    used = [0] * gpus
    for shards in jobs:
        for number in range(gpus):
            if used[number] + shards <= per_gpu:
                used[number] += shards
                break
    return tuple(
        Gpu(taken, per_gpu, whole=number >= gpus - whole and taken == 0)
        for number, taken in enumerate(used)
    )


def _on_each(gpus: int, shards: list[int]) -> int:
    """The shards that at least so many of a node's GPUs have."""
    return sorted(shards, reverse=True)[gpus - 1] if gpus <= len(shards) else 0


def shortages(need: Need, node: NodeUse) -> tuple[Short, ...]:
    """The resources that ``node`` lacks for ``need`` at this moment, GPUs first."""
    gpus = node.of_type(need.gpu_type)
    rows = (
        (
            Resource.SHARDS,
            need.shards,
            _on_each(need.shared_gpus, [gpu.shards_free for gpu in gpus]),
            _on_each(need.shared_gpus, [gpu.shards for gpu in gpus]),
        ),
        (Resource.GPU, need.gpus, sum(gpu.unused for gpu in gpus), len(gpus)),
        (Resource.CPUS, need.cpus, node.cpus - node.cpus_used, node.cpus),
        (Resource.MEMORY, need.memory_mib, node.memory_mib - node.memory_used_mib, node.memory_mib),
    )
    return tuple(
        Short(
            resource,
            needed,
            max(0, free),
            total,
            need.shared_gpus if resource is Resource.SHARDS else 1,
        )
        for resource, needed, free, total in rows
        if needed > max(0, free)
    )


def binding(
    need: Need, partitions: tuple[str, ...], nodes: tuple[NodeUse, ...], uid: int | None = None
) -> Binding:
    """What a job of ``uid`` in ``partitions`` lacks. The nearest node lacks the fewest resources,
    then the smallest part of them; those that are another user's now come behind these, and nodes
    that could never run the job come last."""
    wanted = set(partitions)
    judged = [
        (node, shortages(need, node))
        for node in nodes
        if node.usable and wanted & set(node.partitions) and need.may_get(node)
    ]
    if not judged:
        return Binding(None, possible=False)

    def is_apart(node: NodeUse) -> bool:
        return uid is not None and node.owner_uid not in (None, uid)

    def distance(item: tuple[NodeUse, tuple[Short, ...]]) -> tuple[bool, bool, int, float, str]:
        node, shorts = item
        never = any(one.never for one in shorts)
        missing = sum((one.needed - one.free) / max(1, one.total) for one in shorts)
        return (never, is_apart(node), len(shorts), missing, node.name)

    node, shorts = min(judged, key=distance)
    possible = not any(one.never for one in shorts)
    return Binding(node.name, shorts, possible, possible and is_apart(node))


_WHAT = {
    Resource.GPU: "unused GPUs",
    Resource.CPUS: "CPUs",
    Resource.MEMORY: "MiB of host memory",
}


def _what(one: Short) -> str:
    where = "one GPU" if one.gpus == 1 else f"each of {one.gpus} GPUs"
    return f"shards on {where}" if one.resource is Resource.SHARDS else _WHAT[one.resource]


def binding_text(found: Binding) -> str:
    """The binding in one line."""
    if found.node is None:
        return "no node of its partitions that it may get is in service"
    if found.apart:
        return (
            f"{found.node}, the nearest node, takes another user's jobs alone until they have"
            " ended: users are kept apart there (ExclusiveUser)"
        )
    if not found.shorts:
        return f"it would fit on {found.node} now: jobs before it in the queue come first"
    parts = ", ".join(
        f"{one.needed} {_what(one)} needed, {one.free} free (of {one.total})"
        for one in found.shorts
    )
    names = " and ".join(str(one.resource) for one in found.shorts)
    if not found.possible:
        return f"no node can ever give what it asks for: {names} on {found.node}: {parts}"
    return f"{names} on {found.node}, the nearest node: {parts}"
