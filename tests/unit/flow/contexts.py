# SPDX-License-Identifier: Apache-2.0
"""The context of colocd's parts, for tests of one part."""

from collections.abc import Callable
from typing import Any

from slurm_coloc.adapters.store import Store
from slurm_coloc.config import Config
from slurm_coloc.core.slurm.cluster import ClusterShape
from slurm_coloc.core.slurm.qos_limits import NO_LIMITS, SiteLimits
from slurm_coloc.flow.cluster.context import Context
from slurm_coloc.flow.cluster.telemetry import Live


def context(
    store: Store,
    slurm: Any,
    config: Config | None = None,
    *,
    off: Callable[[], bool] = lambda: False,
    shape: ClusterShape | None = None,
    limits: SiteLimits | None = NO_LIMITS,
    live: Live | None = None,
) -> Context:
    """``slurm``: a stand-in."""
    config, live = config or Config(), live or Live(store)
    return Context(config, store, slurm, live, off, lambda: shape, lambda: limits)
