# SPDX-License-Identifier: Apache-2.0
"""The shape of the cluster from scontrol's names: nodes with GPUs, partitions, slurm.conf,
reservations. The names are the same from 22.05 to 26.05."""

from collections.abc import Iterable, Mapping

from slurm_coloc.adapters.slurm.commands.columns import given
from slurm_coloc.adapters.slurm.commands.parse import (
    UNUSABLE,
    limit_s,
    listed,
    number,
    parse_lines,
    seconds,
    words,
)
from slurm_coloc.core.gpu.mig import slice_of
from slurm_coloc.core.place.gate_wait import age_counts
from slurm_coloc.core.place.node_gate import PARAMETER
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeShape, NodeWeight, PartitionShape
from slurm_coloc.core.slurm.gres import Gres, count_of, model_of, parse_gres
from slurm_coloc.core.slurm.releases import CONSTRAINTS, parse_release
from slurm_coloc.core.time.stretch import Reserved

# States of a node whose jobs are gone.
GONE = ("DOWN", "NOT_RESPONDING", "FAIL", "POWERED_DOWN")


def cluster_shape(
    config: Mapping[str, str],
    nodes: Iterable[Mapping[str, str]],
    parts: Iterable[Mapping[str, str]],
) -> ClusterShape:
    """All of it. ``config``: slurm.conf as slurmctld runs it."""
    release = parse_release(config.get("SLURM_VERSION", ""))
    site = config.get("JobDefaults", "")
    return ClusterShape(
        name=config.get("ClusterName", ""),
        release=release,
        nodes=tuple(shape for pairs in nodes if (shape := node_shape(pairs))),
        partitions=tuple(partition_shape(pairs, site) for pairs in parts),
        private_data=words(config, "PrivateData"),
        select_params=words(config, "SelectTypeParameters"),
        preempt_type=config.get("PreemptType", ""),
        age_counts=age_counts(config),
        constraints=CONSTRAINTS.holds(release)
        and PARAMETER in words(config, "SchedulerParameters"),
    )


def node_shape(pairs: Mapping[str, str]) -> NodeShape | None:
    """A node from scontrol's names; None for a node without GPUs."""
    gres = pairs.get("Gres", "")
    found = [item for item in parse_gres(gres) if item.name == "gpu" and item.count]
    if not found:
        return None
    gpus = [item for item in found if slice_of(item.type) is None]
    kinds = tuple(item.type or "" for item in gpus)
    model = model_of(kinds) if all(item.count == 1 for item in gpus) else None
    types = {model} if model else {item.type for item in gpus}
    state = pairs.get("State", "").upper()
    return NodeShape(
        name=pairs.get("NodeName", ""),
        partitions=listed(pairs.get("Partitions", "")),
        features=listed(pairs.get("ActiveFeatures", "")),
        gpu_type=types.pop() if len(types) == 1 else None,
        gpus=sum(item.count for item in gpus),
        shards=count_of(gres, "shard") or 0,
        usable=not any(word in state for word in UNUSABLE),
        down=any(word in state for word in GONE),
        cpus=number(pairs.get("CPUTot", "")),
        memory_mib=number(pairs.get("RealMemory", "")),
        address=pairs.get("NodeAddr", ""),
        hostname=pairs.get("NodeHostName", ""),
        slices=_slices(found),
        devices=kinds if model else (),
    )


def node_weight(pairs: Mapping[str, str]) -> NodeWeight:
    """A node's Weight, from scontrol's names."""
    return NodeWeight(
        pairs.get("NodeName", ""),
        listed(pairs.get("Partitions", "")),
        number(pairs.get("Weight", "1")),
        bool(count_of(pairs.get("Gres", ""), "gpu")),
    )


def _slices(gpus: Iterable[Gres]) -> tuple[tuple[str, int], ...]:
    """MIG devices among the gres of a node, which Slurm calls gpu as well."""
    counts: dict[str, int] = {}
    for item in gpus:
        if item.type and slice_of(item.type):
            counts[item.type] = counts.get(item.type, 0) + item.count
    return tuple(sorted(counts.items()))


def partition_shape(pairs: Mapping[str, str], site: str = "") -> PartitionShape:
    """A partition from scontrol's names."""
    items = [*site.split(","), *pairs.get("JobDefaults", "").split(",")]
    defaults = dict(item.split("=", 1) for item in items if "=" in item)
    longest_s = limit_s(pairs.get("MaxTime", ""))
    return PartitionShape(
        name=pairs.get("PartitionName", ""),
        default=pairs.get("Default", "NO") == "YES",
        def_cpu_per_gpu=number(defaults.get("DefCpuPerGPU", "")) or None,
        def_mem_per_gpu_mib=number(defaults.get("DefMemPerGPU", "")) or None,
        max_time_min=None if longest_s is None else int(longest_s) // 60,
        qos=given(pairs.get("QoS", "")),
        preempt_mode=pairs.get("PreemptMode", "OFF").upper(),
        priority_tier=number(pairs.get("PriorityTier", "1")),
        exclusive_user=_exclusive_user(pairs),
    )


def _exclusive_user(pairs: Mapping[str, str]) -> bool:
    """ExclusiveUser=YES; 26.05 shows it as Exclusive=USER, and takes both."""
    kinds = pairs.get("Exclusive", "").upper().split(",")
    return "USER" in kinds or pairs.get("ExclusiveUser", "NO").upper() == "YES"


def parse_reservations(text: str) -> list[Reserved]:
    """`scontrol show reservation -o`; "No reservations in the system" is none, and one without
    nodes (licences) holds none."""
    return [
        Reserved(
            pairs["ReservationName"],
            pairs["Nodes"],
            seconds(pairs.get("StartTime", "")),
            seconds(pairs.get("EndTime", "")),
        )
        for pairs in parse_lines(text)
        if "ReservationName" in pairs and given(pairs.get("Nodes", ""))
    ]
