# SPDX-License-Identifier: Apache-2.0
"""``coloc doctor`` and ``coloc config check``: what keeps apart who may not share a GPU."""

import asyncio
from collections.abc import Iterator

from slurm_coloc.adapters.slurm import connect
from slurm_coloc.admin.rules import sharing as rules
from slurm_coloc.admin.rules.finding import Finding, Status
from slurm_coloc.config import Config
from slurm_coloc.core.place.steerable import pinned_on
from slurm_coloc.core.slurm.cluster import ClusterShape
from slurm_coloc.core.slurm.qos_limits import SiteLimits
from slurm_coloc.errors import SlurmError


def checks(config: Config, shape: ClusterShape, limits: SiteLimits | str) -> Iterator[Finding]:
    """The checks. ``limits``: or why they are not known."""
    yield _apart(config, shape, limits)
    sharing = config.sharing
    yield rules.one_server(sharing.with_, sharing.users, sharing.method, config.gate.require_fence)


def _apart(config: Config, shape: ClusterShape, limits: SiteLimits | str) -> Finding:
    known = limits if isinstance(limits, SiteLimits) else SiteLimits()
    place, pool = config.placement, config.pool.partitions
    steered: frozenset[str] = frozenset()
    if place.mode == "steered":
        steered = pinned_on(shape, known, pool, place.nodes)
    return rules.apart(shape, config.sharing.with_, pool, steered, on=_on(config))


def _on(config: Config) -> bool:
    """Whether some job's request is changed."""
    return "on" in {config.mode.default, *(rule.mode for rule in config.mode.rules)}


def sharing_errors(config: Config) -> list[str]:
    """Why the mode "on" is refused to a file, in doctor's words; nothing where Slurm does not
    answer, or where it is not asked for."""
    if config.sharing.with_ == "anyone" or not _on(config):
        return []
    try:
        shape = asyncio.run(connect(config.daemon, briefly=True).shape())
    except SlurmError:
        return []
    found = _apart(config, shape, "not asked")
    return [f"{found.found}: {found.todo}"] if found.status is Status.FAIL else []
