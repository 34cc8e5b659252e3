# SPDX-License-Identifier: Apache-2.0
"""``coloc doctor``: what [[sharing.rules]] come to, on the cluster and on this node."""

import os
from collections.abc import Iterator

from slurm_coloc.adapters.nvml import Missing, Nvml
from slurm_coloc.admin.rules.slurm_conf import Finding, Status
from slurm_coloc.config import Config, SharingRule
from slurm_coloc.core.gpu.sharing import Rule, method_on
from slurm_coloc.core.slurm.cluster import ClusterShape
from slurm_coloc.core.slurm.hosts import in_nodes
from slurm_coloc.errors import GpuError

CHECK = "sharing-rules"


def sharing(config: Config, shape: ClusterShape | None) -> Iterator[Finding]:
    """The checks; none where there are no rules."""
    rules = config.sharing.rules
    if not rules:
        return
    names = [node.name for node in shape.nodes] if shape else []
    lost = [one.node for one in rules if names and one.node and not _any(one.node, names)]
    if lost:
        text = f"of no GPU node of this cluster: {', '.join(lost)}"
        yield Finding(CHECK, Status.WARN, text, "correct node in [[sharing.rules]]")
    else:
        text = f"{len(rules)} rules, else {config.sharing.method}"
        yield Finding(CHECK, Status.OK, text)
    yield _here(config, shape)


def _any(nodes: str, names: list[str]) -> bool:
    return any(in_nodes(nodes, name) for name in names)


def _rule(rule: SharingRule) -> Rule:
    return Rule(rule.method, rule.node, rule.gpu)


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
    rules = [_rule(one) for one in config.sharing.rules]
    told = []
    for gpu in gpus:
        minor = None if isinstance(gpu.minor, Missing) else gpu.minor
        method = method_on(config.sharing.method, rules, name, gpu.uuid, minor)
        told.append(f"{'?' if minor is None else minor} ({gpu.uuid[:12]}): {method}")
    return Finding(check, Status.OK, f"on {name}, by minor number: {', '.join(told)}")
