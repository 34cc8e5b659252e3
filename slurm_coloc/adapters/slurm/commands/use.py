# SPDX-License-Identifier: Apache-2.0
"""Parsers for `coloc explain`: what a job needs, and what every node has free."""

import contextlib
import pwd
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from slurm_coloc.adapters.slurm.commands.columns import Columns, given
from slurm_coloc.adapters.slurm.commands.parse import (
    UNUSABLE,
    listed,
    number,
    size_mib,
    tasks_in,
)
from slurm_coloc.adapters.slurm.commands.shape import node_shape
from slurm_coloc.core.slurm.binding import Gpu, Need, NodeUse, packed
from slurm_coloc.core.slurm.gres import count_of, parse_gres

# What a job needs, for `coloc explain`: TRES asked for while it waits, allocated once it runs.
NEED = Columns(
    "JobID:14,NumNodes:12,tres-alloc:1030,tres-per-node:1030,tres-per-job:1030,NodeList:256,"
    "NumTasks:12,tres-per-task:1030"
)
# A waiting job's, with the nodes that it may get.
NEED_WITH_NODES = Columns(f"{NEED.form},ReqNodes:4096,Feature:1024,ExcNodes:4096")

# States of a node that only some jobs may use now, beside UNUSABLE.
HELD_BACK = ("RESERVED", "MAINT", "POWERED_DOWN", "POWERING_UP", "PLANNED_DOWN", "BLOCKED")


def parse_mib(text: str) -> int:
    """``1000M`` or ``1.50G`` of a TRES string in MiB; 0 where there is no number."""
    return int(size_mib(text) or 0)


def parse_need(line: str) -> Need:
    """What one node must give to a job: one line with the columns of NEED."""
    values = NEED.parse(line)
    tres = dict(item.split("=", 1) for item in values["tres-alloc"].split(",") if "=" in item)
    nodes = max(1, number(values["NumNodes"]))
    per_node, per_job = values["tres-per-node"], values["tres-per-job"]
    per_task, tasks = values["tres-per-task"], max(1, number(values["NumTasks"]) // nodes)
    every = parse_gres(f"{per_node},{per_job},{per_task}")
    asked = [item for item in every if item.name in ("gpu", "shard")]
    # Our shards per task lie on a GPU for each task.
    each = count_of(per_task, "shard") or 0
    gpus = max(
        count_of(per_node, "gpu") or 0,
        -(-(count_of(per_job, "gpu") or 0) // nodes),
        (count_of(per_task, "gpu") or 0) * tasks,
    )
    return Need(
        cpus=-(-number(tres.get("cpu", "")) // nodes),
        memory_mib=parse_mib(tres.get("mem", "")) // nodes,
        shards=each or count_of(per_node, "shard") or 0,
        shared_gpus=tasks if each else 1,
        gpus=gpus,
        gpu_type=next((item.type for item in asked if item.type), None),
    )


def parse_need_with_nodes(line: str) -> Need:
    """The same with the nodes that it may get: one line with the columns of NEED_WITH_NODES."""
    values = NEED_WITH_NODES.parse(line)
    return replace(
        parse_need(line),
        req_nodes=values["ReqNodes"],
        exc_nodes=values["ExcNodes"],
        features=values["Feature"],
    )


def parse_shards_by_node(text: str) -> dict[str, list[int]]:
    """Shards of each running job, by node, oldest job first, from lines with the columns of NEED.
    A job on several nodes is left out: shard jobs have one."""
    found: dict[str, list[int]] = {}
    for values in sorted(NEED.rows(text), key=lambda one: number(one["JobID"])):
        node, shards = values["NodeList"], count_of(values["tres-per-node"], "shard")
        if node and shards and not re.search(r"[\[,]", node):
            found.setdefault(node, []).append(shards)
    return found


def shows_per_gpu(used: str) -> bool:
    """Whether a node's ``GresUsed`` tells the shards of each device (24.11 and later)."""
    return bool(re.search(r"shard:\S*\([\d-]+/\d+", used))


def _devices(used: str, gpus: int) -> tuple[Gpu, ...]:
    """GPUs of a node from ``gpu:a100:1(IDX:0),shard:a100:51(12/39,39/39)``; several types are
    several items, in the order of the devices."""
    whole = {
        number
        for text in re.findall(r"gpu:[^,()]*\(IDX:([\d,-]+)\)", used)
        for number in map(int, tasks_in(text))
    }
    shares = [
        (number(taken), int(total))  # a GPU taken whole: 0/39, on 26.05 -/39
        for item in re.findall(r"shard:[^()]*(?:\(null\):?)?[^()]*\(([\d/,-]+)\)", used)
        for taken, total in re.findall(r"(\d+|-)/(\d+)", item)
    ]
    shares += [(0, 0)] * (gpus - len(shares))
    return tuple(
        Gpu(taken, total, whole=number in whole) for number, (taken, total) in enumerate(shares)
    )


def node_use(pairs: Mapping[str, str], jobs_shards: Mapping[str, Sequence[int]]) -> NodeUse:
    """A node's use from scontrol's names (``show node -d``). ``jobs_shards``: what running
    jobs hold by node, used where Slurm does not tell the shards per device."""
    shape = node_shape(pairs)
    used = pairs.get("GresUsed", "")
    gpus: tuple[Gpu, ...] = ()
    if shape and shows_per_gpu(used):
        gpus = _devices(used, shape.gpus)
    elif shape:
        taken = jobs_shards.get(shape.name, ())
        gpus = packed(taken, shape.shards_per_gpu, count_of(used, "gpu") or 0, shape.gpus)
    state = pairs.get("State", "").upper()
    return NodeUse(
        name=pairs.get("NodeName", ""),
        partitions=listed(pairs.get("Partitions", "")),
        usable=not any(word in state for word in UNUSABLE),
        cpus=number(pairs.get("CPUEfctv", pairs.get("CPUTot", ""))),
        cpus_used=number(pairs.get("CPUAlloc", "")),
        memory_mib=number(pairs.get("RealMemory", "")),
        memory_used_mib=number(pairs.get("AllocMem", "")),
        gpu_type=shape.gpu_type if shape else None,
        gpus=gpus,
        spread=shows_per_gpu(used),
        devices=shape.devices if shape else (),
        extra=given(pairs.get("Extra", "")),
        features=listed(pairs.get("ActiveFeatures", "")),
        held_back=any(word in state for word in HELD_BACK),
        owner_uid=_owner(pairs.get("Owner", "")),
    )


@lru_cache(1024)  # a name server is asked once for each user
def _owner(text: str) -> int | None:
    """A node's owner: ``name(uid)``, in JSON the name alone; None where it is nobody's."""
    name, _, uid = text.partition("(")
    if uid:
        return number(uid.rstrip(")"))
    with contextlib.suppress(KeyError):
        return pwd.getpwnam(name).pw_uid
    return None


def parse_placement(text: str) -> str:
    """``n1 GPU 0`` from ``scontrol show job -d``; "" where none is shown.

    Only for people: the owner of a job could forge these lines by its name.
    """
    return placed(re.findall(r"^ +Nodes=(\S+) CPU_IDs=\S* Mem=\S+ GRES=(\S+)", text, re.MULTILINE))


def placed(found: Sequence[tuple[str, str]]) -> str:
    """Nodes and GPU indices for people, from each node's name and gres in detail."""
    places = []
    for node, gres in found:
        index = re.search(r"(?:gpu|shard):\S*?\(IDX:([\d,-]+)\)", gres)
        devices = re.findall(r"(?:gpu|shard):[^(]*\(([\d/,-]+)\)", gres)
        if index:
            places.append(f"{node} GPU {index[1]}")
        elif devices:
            held = [str(n) for n, part in enumerate(devices[0].split(",")) if part[0] not in "0-"]
            places.append(f"{node} GPU {','.join(held)}")
    return "; ".join(places)
