# SPDX-License-Identifier: Apache-2.0
"""Jobs that wait or run, as steering needs them."""

from dataclasses import dataclass

from slurm_coloc.core.slurm.gres import gpu_request


@dataclass(frozen=True, slots=True)
class Queued:
    """One job, or the first waiting task of an array. ``tres_*``: requests as squeue shows them;
    ``nodes``: those that it runs on; ``limit_s``: None, unlimited; ``memory_mib``: on each node, or
    for each CPU where ``memory_per_cpu``."""

    job_id: int
    handle: str
    state: str
    priority: int
    uid: int
    reason: str = ""
    restarts: int = 0
    partition: str = ""
    tres_per_node: str = ""
    tres_per_task: str = ""
    tres_per_job: str = ""
    admin_comment: str = ""
    nodes: str = ""
    req_nodes: str = ""
    exc_nodes: str = ""
    features: str = ""
    reservation: str = ""
    limit_s: float | None = None
    start_s: float | None = None
    end_s: float | None = None
    num_nodes: int = 1
    num_tasks: int = 1
    cpus: int = 1
    memory_mib: int = 0
    memory_per_cpu: bool = False
    array: bool = False
    array_id: int = 0  # of its array, where it is a task of one
    submit_s: float | None = None  # of its last requeue, where there was one
    qos: str = ""
    account: str = ""
    cut: bool = False  # its features or nodes may be longer than they are shown

    @property
    def tres(self) -> str:
        """Its request for GPUs or shards (core/slurm/gres.gpu_request)."""
        return gpu_request(self.tres_per_node, self.tres_per_task)

    @property
    def waits(self) -> bool:
        """Whether it is in the queue."""
        return self.state == "PENDING"
