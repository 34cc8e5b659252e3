# SPDX-License-Identifier: Apache-2.0
"""Checks of `coloc doctor` for the shards of nodes and for the partitions that have them, pure."""

import re
from collections.abc import Collection, Sequence

from slurm_coloc.admin.rules.finding import Finding, Status, judge
from slurm_coloc.admin.rules.slurm_conf import Conf, values
from slurm_coloc.core.gpu.cards import GPU_TYPES
from slurm_coloc.core.gpu.mig import slice_of
from slurm_coloc.core.slurm.cluster import ClusterShape, suspends
from slurm_coloc.core.slurm.gres import parse_gres


def suspending(shape: ClusterShape, shared: Collection[str]) -> Finding:
    """A suspended job keeps its GPU memory: partitions that suspend are not shared."""
    found = sorted(part.name for part in shape.partitions if suspends(part) and part.name in shared)
    return judge(
        "preempt-mode",
        not found,
        f"PreemptMode SUSPEND or GANG: {', '.join(found)}"
        if found
        else "no shared partition suspends",
        "their jobs get whole GPUs; with PreemptMode=REQUEUE, CANCEL or OFF they can share",
        Status.WARN,
    )


def shard_counts(shape: ClusterShape, shard_mib: int) -> Finding:
    """Shards of each node against its GPUs' memory as their type tells it."""
    cut = [node for node in shape.nodes if node.shards]
    if not cut:
        return Finding(
            "shard-counts",
            Status.FAIL,
            f"{len(shape.nodes)} GPU nodes, none with shards",
            "gres.conf: Name=shard Count=<GPUs x shards of one>; slurm.conf: Gres=...,shard:<n>",
        )
    wrong = []
    for node in cut:
        if node.shards % node.gpus:
            wrong.append(f"{node.name}: {node.shards} shards over {node.gpus} GPUs")
        most = _largest(node.gpu_type)
        if most and node.shards_per_gpu * shard_mib > most:
            wrong.append(
                f"{node.name}: {node.shards_per_gpu} shards of {shard_mib} MiB are more than a"
                f" {node.gpu_type} has ({most} MiB)"
            )
    each = ", ".join(f"{node.name} {node.gpus}x{node.shards_per_gpu}" for node in cut[:8])
    return judge(
        "shard-counts",
        not wrong,
        "; ".join(wrong) or each,
        "count = GPUs x floor((usable MiB - pool.margin_mib) / pool.shard_mib)",
    )


def shard_types(conf: Conf, lines: Sequence[str]) -> Finding:
    """Shards without a type beside GPUs with one, under two controllers: a backup slurmctld of
    24.11 that takes over sees ``shard:a100:0`` then and drains the node. ``lines``: slurm.conf's,
    since scontrol shows the shards with the GPUs' type in any case; empty: it cannot be read."""
    name, controllers = "shard-types", len(values(conf, "SlurmctldHost"))
    if controllers < 2:
        return Finding(name, Status.NA, "one controller")
    if not lines:
        return Finding(name, Status.NA, f"{controllers} controllers; slurm.conf cannot be read")
    wrong = {}
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        node = re.match(r"NodeName=(\S+)", line, re.IGNORECASE)
        gres = re.search(r"\sGres=\"?([^\s\"]+)", line, re.IGNORECASE)
        items = parse_gres(gres[1]) if node and gres else ()
        kinds = [
            one.type
            for one in items
            if one.name == "gpu" and one.type and slice_of(one.type) is None
        ]
        bare = [one for one in items if one.name == "shard" and not one.type]
        if node and kinds and bare:
            each = bare[0].count // len(kinds)
            wrong[node[1]] = ",".join(f"shard:{kind}:{each}" for kind in kinds)
    told = "; ".join(f"NodeName={node} Gres=...,{gres}" for node, gres in wrong.items())
    return judge(
        name,
        not wrong,
        f"shards without a type: {', '.join(wrong)}; when the backup slurmctld takes over, 24.11"
        " finds none there and drains the nodes"
        if wrong
        else f"{controllers} controllers, shards as typed as their GPUs",
        f"slurm.conf: {told}",
        Status.WARN,
    )


def _largest(gpu_type: str | None) -> int:
    """Memory (MiB) of the largest known GPU whose name begins like ``gpu_type``; 0: not known."""
    if not gpu_type:
        return 0
    base = gpu_type.lower().split("-")[0].split("_")[0]
    sizes = [kind.total_mib for name, kind in GPU_TYPES.items() if name.split("-")[0] == base]
    return max(sizes, default=0)
