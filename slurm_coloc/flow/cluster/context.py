# SPDX-License-Identifier: Apache-2.0
"""What stages that look at the whole cluster are handed."""

from collections.abc import Callable
from dataclasses import dataclass

from slurm_coloc.adapters.slurm import SlurmClient
from slurm_coloc.adapters.store import Store
from slurm_coloc.config import Config
from slurm_coloc.core.slurm.cluster import ClusterShape
from slurm_coloc.core.slurm.qos_limits import SiteLimits
from slurm_coloc.flow.cluster.telemetry import Live


@dataclass(frozen=True, slots=True)
class Context:
    """The configuration, what colocd keeps, Slurm, and the GPUs as their agents see them.

    ``off``: whether the switch is thrown. ``shape``, ``limits``: None while they were not read.
    """

    config: Config
    store: Store
    slurm: SlurmClient
    live: Live
    off: Callable[[], bool]
    shape: Callable[[], ClusterShape | None]
    limits: Callable[[], SiteLimits | None]
