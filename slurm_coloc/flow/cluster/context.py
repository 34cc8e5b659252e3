# SPDX-License-Identifier: Apache-2.0
"""The objects that all stages share."""

from collections.abc import Callable
from dataclasses import dataclass

from slurm_coloc.adapters.slurm import SlurmClient
from slurm_coloc.adapters.store import Store
from slurm_coloc.config import Config
from slurm_coloc.core.decide.decision import Decision
from slurm_coloc.core.decide.request import JobRequest
from slurm_coloc.core.decide.rewrite import Rewrite
from slurm_coloc.core.slurm.cluster import ClusterShape
from slurm_coloc.core.slurm.qos_limits import SiteLimits
from slurm_coloc.flow.cluster.telemetry import Live


@dataclass(frozen=True, slots=True)
class Context:
    """The configuration, the database, Slurm, and the GPUs as their agents see them.

    ``off``: whether the off switch is set. ``shape``, ``limits``: None until they have been read.
    """

    config: Config
    store: Store
    slurm: SlurmClient
    live: Live
    off: Callable[[], bool]
    shape: Callable[[], ClusterShape | None]
    limits: Callable[[], SiteLimits | None]


@dataclass(frozen=True, slots=True)
class ShareRequest:
    """A submission whose job will share a GPU. ``smact``: its expected SM activity (ratio);
    ``change``: the change of its request so far."""

    decision_id: str
    request: JobRequest
    decision: Decision
    smact: float | None
    change: Rewrite
