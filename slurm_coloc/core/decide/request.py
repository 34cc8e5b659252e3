# SPDX-License-Identifier: Apache-2.0
"""A job's request as job_submit sees it, and the number of its GPUs."""

import math
from dataclasses import dataclass
from functools import cached_property

from slurm_coloc.core.slurm.gres import Gres, parse_gres, with_item, without

GPU_FIELDS = ("tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket")


@dataclass(frozen=True)
class JobRequest:
    """Fields of job_desc (slurm.h's names); None where the user set nothing.

    Memory is in MiB, ``time_limit`` in minutes; ``name`` is shown and decides nothing. What
    follows from the fields is parsed once.
    """

    uid: int
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    features: str | None = None
    time_limit: int | None = None
    num_tasks: int | None = None
    ntasks_per_node: int | None = None
    min_nodes: int | None = None
    max_nodes: int | None = None
    min_cpus: int | None = None
    cpus_per_task: int | None = None
    min_mem_per_node: int | None = None
    min_mem_per_cpu: int | None = None
    tres_per_node: str | None = None
    tres_per_job: str | None = None
    tres_per_task: str | None = None
    tres_per_socket: str | None = None
    cpus_per_tres: str | None = None
    mem_per_tres: str | None = None
    array: str | None = None
    het: bool = False
    exclusive_node: bool = False
    requeue: int | None = None
    batch: bool = True
    admin_comment: str | None = None
    default_account: str | None = None
    req_nodes: str | None = None
    exc_nodes: str | None = None
    reservation: str | None = None
    tres_freq: str | None = None
    tres_bind: str | None = None
    ntasks_per_tres: int | None = None
    kind: str = "batch"
    name: str | None = None
    env: tuple[str, ...] = ()

    @cached_property
    def gpu_fields(self) -> dict[str, tuple[Gres, ...]]:
        """The gres of each field that names a GPU."""
        found = {name: parse_gres(getattr(self, name)) for name in GPU_FIELDS}
        return {name: items for name, items in found.items() if _count(items) is not None}

    @cached_property
    def demand(self) -> "GpuDemand":
        return _demand(self)

    @cached_property
    def partitions(self) -> tuple[str, ...]:
        """The partitions that it names; () for none."""
        return tuple(part for part in (self.partition or "").split(",") if part)

    def per_node(self, item: str) -> str:
        """Its tres_per_node with ``item`` in place of GPUs and shards."""
        return with_item(without(self.tres_per_node, "gpu", "shard"), item)


@dataclass(frozen=True, slots=True)
class GpuDemand:
    """GPUs of a request: ``total`` over all nodes (None: none named), ``type``.

    ``one_per_task``: each task has its own GPU, and the request says so per task. ``one_per_node``:
    so many nodes and no more, each with one GPU and one task.
    """

    total: int | None
    type: str | None
    nodes: int
    tasks: int
    one_per_task: bool = False
    one_per_node: bool = False

    @property
    def gpus(self) -> int:
        """The GPUs that the job gets: one where it names none."""
        return max(1, self.total or 1)

    @property
    def processes(self) -> int:
        """Processes of its training, each on a GPU of its own."""
        return self.gpus if self.one_per_task or self.one_per_node else 1

    @property
    def on_a_node(self) -> int:
        """The GPUs that the job gets on one node."""
        return 1 if self.one_per_node else self.gpus


def _count(items: tuple[Gres, ...]) -> int | None:
    """GPUs among the gres; None without any."""
    counts = [item.count for item in items if item.name == "gpu"]
    return sum(counts) if counts else None


def _demand(request: JobRequest) -> GpuDemand:
    """Count the GPUs of a request over tres_per_node, _job, _task and _socket.

    Where several are given the largest counts: Slurm requires them to be consistent. A request per
    socket cannot be counted before the node is known, so it counts as several.
    """
    per_node = request.ntasks_per_node
    spread = math.ceil((request.num_tasks or 1) / per_node) if per_node else 1
    nodes = max(1, request.min_nodes or 1, spread)
    tasks = max(1, request.num_tasks or nodes * (per_node or 1))
    factors = {"tres_per_node": nodes, "tres_per_job": 1, "tres_per_task": tasks}
    counts = {name: _count(items) or 0 for name, items in request.gpu_fields.items()}
    if counts.get("tres_per_socket"):
        counts["tres_per_socket"] = max(2, counts["tres_per_socket"])
    totals = [count * factors.get(name, 1) for name, count in counts.items()]
    gpus = [item for items in request.gpu_fields.values() for item in items if item.name == "gpu"]
    kinds = {item.type for item in gpus if item.type}
    return GpuDemand(
        total=max(totals) if totals else None,
        type=next(iter(kinds)) if len(kinds) == 1 else None,
        nodes=nodes,
        tasks=tasks,
        one_per_task=counts.get("tres_per_task") == 1 and set(totals) == {tasks},
        one_per_node=nodes > 1
        and nodes == tasks
        and set(totals) == {nodes}
        and request.max_nodes in (None, nodes)
        and (counts.get("tres_per_node") == 1 or per_node == 1),
    )
