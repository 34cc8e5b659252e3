# SPDX-License-Identifier: Apache-2.0
"""What the stages are handed."""

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


@dataclass(frozen=True, slots=True)
class ShareRequest:
    """A submission whose job will share a GPU, while it is answered. ``smact``: the SM activity
    that is expected (ratio); ``change``: what is to be changed of its request so far."""

    decision_id: str
    request: JobRequest
    decision: Decision
    smact: float | None
    change: Rewrite
