# SPDX-License-Identifier: Apache-2.0
"""What colocd asks of Slurm: one small interface, whatever stands behind it.

Every call has a time limit and a place in a bounded queue, and raises SlurmError whose code tells a
Slurm that is away (``slurm-away``, ``slurm-busy``) from one that refused (``slurm-refused``): a
busy or restarting slurmctld never hangs colocd. An order that got no answer may still be carried
out later: look before the next.
``handle`` is ``JobView.handle``.
"""

from collections.abc import Collection
from typing import Protocol

from slurm_coloc.core.place.queued_jobs import Queued
from slurm_coloc.core.slurm.binding import Need, NodeUse
from slurm_coloc.core.slurm.cluster import ClusterShape, Controller
from slurm_coloc.core.slurm.job import EndedJob, JobView, Terms
from slurm_coloc.core.slurm.qos_limits import SiteLimits
from slurm_coloc.core.time.stretch import Reserved


class SlurmClient(Protocol):
    """Questions and orders to slurmctld (and, for ended jobs, slurmdbd)."""

    async def shape(self) -> ClusterShape:
        """The cluster's name, release, GPU nodes and partitions."""

    async def config(self) -> dict[str, str]:
        """slurm.conf as slurmctld runs it, under its own names."""

    async def job(self, job_id: int) -> JobView | None:
        """One job; None when slurmctld no longer knows it."""

    async def jobs_of(self, uids: Collection[int]) -> list[JobView]:
        """Every job of these users that slurmctld still knows, array tasks one by one."""

    async def tasks_of(self, array_job_id: int) -> list[JobView]:
        """The tasks of an array that slurmctld still knows, those that wait one by one; tasks of
        one ``job_id`` stand in one record of slurmctld's."""

    async def waiting_in_vain(self) -> list[JobView]:
        """Jobs of anybody that wait for what can no longer be (DependencyNeverSatisfied), with
        ``dependency`` and what names them; the other fields are unset."""

    async def waiting(self) -> list[JobView]:
        """Jobs of anybody that wait, an array's untouched rest as one, with owner, priority,
        partitions and QOS; the other fields are unset."""

    async def all_jobs(self) -> list[JobView]:
        """Every job that slurmctld still knows, array tasks one by one."""

    async def billing_weights(self) -> dict[str, str]:
        """TRESBillingWeights by partition, "" where there are none."""

    async def usage(self) -> tuple[NodeUse, ...]:
        """What every node has and what is taken now, per device where the release tells."""

    async def queue(self) -> list[Queued]:
        """Every job that waits or runs, an array as one; in no order (core/place/queue_order)."""

    async def need(self, job_id: int) -> Need | None:
        """What one node must give to a job; None when slurmctld no longer knows it."""

    async def excluded(self, handle: str) -> str:
        """The nodes that a job must not get (ExcNodeList), in Slurm's notation; "" for none."""

    async def extra(self, handle: str) -> str:
        """A waiting job's Extra, "" for none; SlurmError where slurmctld no longer knows it."""

    async def terms(self, handle: str) -> Terms:
        """A job's nice value, time limit and reservations; SlurmError where slurmctld no longer
        knows it."""

    async def reservations(self) -> list[Reserved]:
        """Reservations of nodes, whoever they are for."""

    async def signal(self, handle: str, name: str) -> None:
        """Send a signal to the batch script and all steps of a running job."""

    async def notify(self, handle: str, text: str) -> None:
        """Write a line to the standard error of a running job's batch script."""

    async def cancel(self, handle: str) -> None:
        """End a job."""

    async def placement(self, job_id: int) -> str:
        """Node and GPU index of a running job, for people; "" where Slurm does not show it."""

    async def ended(self, since_s: float) -> list[EndedJob]:
        """Jobs that ended after ``since_s`` (Unix seconds), from slurmdbd, oldest first; SlurmError
        ``no-accounting`` where there is none."""

    async def accounted(self, *job_ids: int) -> list[EndedJob]:
        """Every run of these jobs as slurmdbd keeps it, oldest first, also when slurmctld has
        forgotten them; SlurmError ``no-accounting`` where there is no slurmdbd."""

    async def steps(self, since_s: float) -> dict[str, str]:
        """Commands of the steps that began after ``since_s`` (Unix seconds), by step; SlurmError
        ``no-accounting`` where there is no slurmdbd."""

    async def limits(self, cluster: str) -> SiteLimits:
        """QOS and association limits and the partitions' billing weights; SlurmError
        ``no-accounting`` where there is no slurmdbd."""

    async def set_limit(self, *command: str) -> None:
        """Run one `sacctmgr modify` (admin/rules/limit_plan.command) as the caller, unasked."""

    async def controllers(self) -> list[Controller]:
        """Every slurmctld of the cluster and whether it answers, in slurm.conf's order."""

    async def requeue(self, handle: str) -> None:
        """Put an ended or running job back into the queue."""

    async def hold(self, handle: str) -> None:
        """Hold a pending job (as the administrator: its owner cannot release it)."""

    async def requeue_hold(self, handle: str) -> None:
        """Put an ended or running job back into the queue, held."""

    async def release(self, handle: str) -> None:
        """End the hold of a pending job."""

    async def set_gres(self, handle: str, tres: str) -> None:
        """Replace what a pending job asks for on each node (``gres/gpu:1``) or, behind
        ``per-task:``, for each task (core/slurm/gres.gpu_request)."""

    async def node_extra(self, node: str) -> str:
        """A node's Extra, "" for none (23.11 and later)."""

    async def set_node_extra(self, node: str, text: str) -> None:
        """Replace a node's Extra (23.11 and later)."""

    async def update(self, handle: str, **fields: str | int) -> None:
        """Change fields of a job under ``scontrol update``'s names."""
