# SPDX-License-Identifier: Apache-2.0
"""A trace: the jobs that were submitted, and what is true of each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.core.place.gpu_slot import PlaceRequest

NONE: Mapping[str, int | None] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job.

    ``name``: what it trains; jobs of one name are runs of the same training. ``submit_s``: from the
    trace's beginning. ``run_s``: seconds alone on its GPUs. ``memory_mib``: true peak on each of
    them. ``limit_s``: time limit; None: none. ``coloc``: whether it asked for --coloc. ``cpus`` and
    ``host_mib``: of the node, for the whole job. ``estimates``: estimator -> MiB, None = that
    estimator gives no answer.
    """

    id: int
    name: str
    submit_s: float
    gpus: int
    run_s: float
    memory_mib: int
    activity: Activity
    user: str = ""
    account: str = ""
    limit_s: float | None = None
    coloc: bool = True
    cpus: int = 0
    host_mib: int = 0
    estimates: Mapping[str, int | None] = field(default_factory=lambda: NONE)

    def request(
        self, need_mib: int | None, share: bool = True, idle_only: bool = False
    ) -> PlaceRequest:
        """What the scheduler sees of the job, without its node's CPUs and memory."""
        return PlaceRequest(
            self.id,
            self.gpus,
            need_mib,
            self.activity,
            self.submit_s,
            user=self.user,
            account=self.account,
            share=share,
            idle_only=idle_only,
        )

    @property
    def work_s(self) -> float:
        """Seconds of a GPU's full SM activity that the job needs, over all its GPUs."""
        return self.run_s * self.gpus * self.activity.smact
