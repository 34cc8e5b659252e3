# SPDX-License-Identifier: Apache-2.0
"""``coloc doctor``: Slurm's release, slurm.conf, shards, billing and limits."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from slurm_coloc.adapters import probe
from slurm_coloc.adapters.slurm import connect
from slurm_coloc.admin.rules import accounting, placement, releases, shard_checks, slurm_conf
from slurm_coloc.admin.rules.finding import Finding, Status, judge
from slurm_coloc.admin.rules.limit_plan import plan
from slurm_coloc.admin.rules.slurm_conf import Conf
from slurm_coloc.config import Config
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeWeight
from slurm_coloc.core.slurm.qos_limits import SiteLimits
from slurm_coloc.errors import SlurmError


@dataclass(frozen=True, slots=True)
class Slurm:
    """What slurmctld answered."""

    conf: dict[str, str]
    shape: ClusterShape
    weights: dict[str, str]
    limits: SiteLimits | str  # or why they are not known
    nodes: tuple[NodeWeight, ...]


def read(config: Config) -> Slurm:
    """Ask slurmctld and slurmdbd; raises SlurmError where slurmctld does not answer."""
    return asyncio.run(_read(config))


async def _read(config: Config) -> Slurm:
    slurm = connect(config.daemon, briefly=True)
    shape = await slurm.shape()
    limits: SiteLimits | str
    try:
        limits = await slurm.limits(shape.name)
    except SlurmError as err:
        limits = "no slurmdbd" if err.code == "no-accounting" else err.message
    conf, prices = await slurm.config(), await slurm.billing_weights()
    return Slurm(conf, shape, prices, limits, await slurm.node_weights())


def _only_observes(config: Config) -> bool:
    """Whether no job shares by this configuration."""
    modes = config.mode.default, *(rule.mode for rule in config.mode.rules)
    return "on" not in modes


def checks(config: Config, slurm: Slurm) -> Iterator[Finding]:
    """slurm.conf, the shards and the limits."""
    user = slurm_conf.value(slurm.conf, "SlurmUser").split("(")[0]
    same = user == config.daemon.slurm_user
    text = f"SlurmUser={user}, daemon.slurm_user={config.daemon.slurm_user}"
    yield judge("slurm-user", same, text, f'coloc.toml: [daemon] slurm_user = "{user}"')
    every: tuple[Callable[[Conf], Finding], ...] = (
        *releases.RELEASE_CHECKS,
        *slurm_conf.SETTINGS,
        accounting.accounting,
    )
    shards = any(node.shards for node in slurm.shape.nodes)
    for check in every:
        found = check(slurm.conf)
        if found.check == slurm_conf.gres_types.check and not shards and _only_observes(config):
            found = replace(found, status=Status.NA, todo="")
        if found.check == "priority-type" and config.recovery.raise_by != "priority":
            continue
        yield found
    if shards or not _only_observes(config):
        yield shard_checks.shard_counts(slurm.shape, config.pool.shard_mib)
    else:
        text = "no shards, and none needed while everything is observed: coloc init --share"
        yield Finding("shard-counts", Status.NA, text)
    lines = probe.plugstack(Path(slurm_conf.value(slurm.conf, "SLURM_CONF")))
    yield shard_checks.shard_types(slurm.conf, lines)
    shared = {part for node in slurm.shape.nodes if node.shards for part in node.partitions}
    if config.pool.partitions:
        shared &= set(config.pool.partitions)
    yield placement.cpu_jobs(slurm.nodes)
    yield shard_checks.suspending(slurm.shape, shared)
    yield accounting.enforced(slurm.conf)
    if config.metrics.job_summaries:
        yield accounting.summaries(slurm.conf, slurm.shape.release)
    yield accounting.billing(slurm.conf, slurm.shape, slurm.weights, shared)
    yield accounting.typed_tres(slurm.conf, slurm.weights)
    yield _limits(config, slurm)


def _limits(config: Config, slurm: Slurm) -> Finding:
    if isinstance(slurm.limits, str):
        return Finding("gpu-limits", Status.NA, slurm.limits)
    return accounting.gpu_limits(plan(slurm.limits, slurm.shape, config.pool.partitions))
