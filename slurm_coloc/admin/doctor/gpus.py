# SPDX-License-Identifier: Apache-2.0
"""``coloc doctor``: the GPUs of this host, and what [[sharing.rules]] come to on them."""

import os
from collections.abc import Iterator

from slurm_coloc.adapters import probe
from slurm_coloc.adapters.nvml import Missing, Nvml
from slurm_coloc.admin.rules.finding import Finding, Status, judge
from slurm_coloc.config import Config
from slurm_coloc.core.gpu.cards import shards_of
from slurm_coloc.core.gpu.sharing import Rule, method_on
from slurm_coloc.core.slurm.cluster import ClusterShape
from slurm_coloc.core.slurm.hosts import in_nodes
from slurm_coloc.errors import ColocError, GpuError

WITH_GPU = "GPUs of this host"


def sharing(config: Config, shape: ClusterShape | None) -> Iterator[Finding]:
    """The checks; none where there are no rules."""
    rules = config.sharing.rules
    if not rules:
        return
    names = [node.name for node in shape.nodes] if shape else []
    lost = [
        one.node
        for one in rules
        if names and one.node and not any(in_nodes(one.node, name) for name in names)
    ]
    if lost:
        text = f"of no GPU node of this cluster: {', '.join(lost)}"
        yield Finding("sharing-rules", Status.WARN, text, "correct node in [[sharing.rules]]")
    else:
        text = f"{len(rules)} rules, else {config.sharing.method}"
        yield Finding("sharing-rules", Status.OK, text)
    yield _here(config, shape)


def _here(config: Config, shape: ClusterShape | None) -> Finding:
    """What each GPU of this host has by the rules."""
    check = "sharing-here"
    host = os.environ.get("SLURMD_NODENAME") or os.uname().nodename.partition(".")[0]
    nodes = shape.nodes if shape else ()
    name = next((one.name for one in nodes if host in (one.name, one.hostname)), host)
    try:
        with Nvml() as lib:
            gpus = lib.all()
    except GpuError as err:
        return Finding(check, Status.NA, f"GPUs of this host: {err.message}")
    rules = [Rule(one.method, one.node, one.gpu) for one in config.sharing.rules]
    methods = []
    for gpu in gpus:
        minor = None if isinstance(gpu.minor, Missing) else gpu.minor
        method = method_on(config.sharing.method, rules, name, gpu.uuid, minor)
        methods.append(f"{'?' if minor is None else minor} ({gpu.uuid[:12]}): {method}")
    return Finding(check, Status.OK, f"on {name}, by minor number: {', '.join(methods)}")


def memory(config: Config, shape: ClusterShape | None) -> Finding:
    """Whether the GPUs of this host have the memory of the shards that Slurm has for them."""
    name = "gpu-memory"
    try:
        with Nvml() as nvml:
            gpus = nvml.all()
    except ColocError as err:
        return Finding(name, Status.NA, f"{WITH_GPU}: {err.message}")
    pool = config.pool
    offers = [shards_of(gpu.total_mib, pool.shard_mib, pool.margin_mib) for gpu in gpus]
    text = ", ".join(f"{gpu.name}: {count} shards" for gpu, count in zip(gpus, offers, strict=True))
    host = probe.short_host_name()
    node = next((n for n in shape.nodes if n.name == host), None) if shape else None
    if node is None or not offers:
        return Finding(name, Status.NA, f"{text or 'no GPU'}; no node of Slurm is called {host}")
    good = node.shards_per_gpu <= min(offers)
    todo = f"more shards than memory: give the node {min(offers) * node.gpus} shards"
    return judge(name, good, f"{text}; Slurm has {node.shards_per_gpu} a GPU", todo)


def accounting(config: Config) -> Finding:
    """The driver's accounting mode, which keeps the peaks of jobs that have a GPU to themselves."""
    name = "gpu-accounting"
    if not config.estimate.history:
        return Finding(name, Status.NA, "estimate.history = false: no peaks are measured")
    try:
        with Nvml() as nvml:
            silent = nvml.not_accounted()
    except ColocError as err:
        return Finding(name, Status.NA, f"{WITH_GPU}: {err.message}")
    if not silent:
        return Finding(name, Status.OK, "peaks of the jobs that have a GPU to themselves are kept")
    todo = "nvidia-smi -am 1 (as root, with persistence mode, whenever the driver is loaded)"
    text = f"accounting mode is off on {', '.join(silent)}: no peaks are measured"
    return Finding(name, Status.WARN, text, todo)
