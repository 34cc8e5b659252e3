# SPDX-License-Identifier: Apache-2.0
"""Checks of `coloc doctor` for clusters with MIG devices, pure."""

from collections.abc import Iterator, Sequence

from slurm_coloc.admin.rules.finding import Finding, Status
from slurm_coloc.core.gpu.mig import slice_mib
from slurm_coloc.core.slurm.cluster import ClusterShape

SHOWN = 6


def mig(shape: ClusterShape, whole_types: Sequence[str] = ()) -> Iterator[Finding]:
    """What MIG devices want; nothing where there are none. ``whole_types``: what job_submit.lua
    gives to untyped requests, where that is known."""
    counts: dict[str, int] = {}
    for node in shape.nodes:
        for kind, count in node.slices:
            counts[kind] = counts.get(kind, 0) + count
    if not counts:
        return
    unknown = [kind for kind in counts if slice_mib(kind) is None]
    told = ", ".join(f"{kind}: {count}" for kind, count in sorted(counts.items()))
    if unknown:
        yield Finding(
            "mig-profiles",
            Status.WARN,
            f"of unknown memory: {', '.join(unknown)} ({told})",
            "no job is given these: their gres types must be NVIDIA's profile names (1g.5gb)",
        )
    else:
        yield Finding("mig-profiles", Status.OK, told)
    yield _untyped(shape, whole_types)


def _untyped(shape: ClusterShape, whole_types: Sequence[str]) -> Finding:
    """`--gres=gpu:1` of no type is what a MIG device is, too (tried 22.05 and 24.11)."""
    types = sorted({node.gpu_type or "" for node in shape.nodes if node.gpus})
    if not types:
        return Finding("mig-untyped", Status.OK, "no whole GPU that an untyped request could mean")
    if len(types) > 1 or not types[0]:
        return Finding(
            "mig-untyped",
            Status.WARN,
            f"an untyped gpu:1 may get a MIG device; whole GPUs have several types or none: "
            f"{', '.join(one or 'none' for one in types[:SHOWN])}",
            "put MIG devices on nodes of a partition of their own, and give whole GPUs types",
        )
    if list(whole_types) == types:
        return Finding("mig-untyped", Status.OK, f"untyped requests get {types[0]}")
    return Finding(
        "mig-untyped",
        Status.WARN,
        "an untyped gpu:1 of a job without --coloc may get a MIG device",
        f'in job_submit.lua: coloc.setup{{ whole_type = "{types[0]}" }}',
    )
