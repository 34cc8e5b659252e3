# SPDX-License-Identifier: Apache-2.0
"""Slurm through its own commands: what works on every release from 22.05 on.

Every call has a time limit and a place in a bounded queue (gate.py), and raises SlurmError whose
code tells a Slurm that is away (``slurm-away``, ``slurm-busy``) from one that refused
(``slurm-refused``): a busy or restarting slurmctld never hangs colocd.

data.py reads the commands' JSON where the release has it; parse.py, queue.py, shape.py and use.py
read their text: each knows the differences between the releases that it reads. orders.py has the
orders, accounting.py the questions to slurmdbd, process.py bounds a command.
"""

import asyncio
from collections.abc import Awaitable, Collection, Mapping
from pathlib import Path
from typing import TypeVar

import structlog

from slurm_coloc.adapters.slurm.commands import data, queue, use
from slurm_coloc.adapters.slurm.commands.columns import Columns, given
from slurm_coloc.adapters.slurm.commands.limits import (
    ASSOC_COLUMNS,
    QOS_COLUMNS,
    parse_assocs,
    parse_qos,
    with_uids,
)
from slurm_coloc.adapters.slurm.commands.orders import Orders
from slurm_coloc.adapters.slurm.commands.parse import (
    JOB,
    TERMS,
    job_view,
    number,
    parse_jobs,
    parse_lines,
    parse_ping,
    parse_terms,
)
from slurm_coloc.adapters.slurm.commands.shape import (
    cluster_shape,
    node_weight,
    parse_reservations,
)
from slurm_coloc.core.place.queued_jobs import Queued
from slurm_coloc.core.slurm.billing import parse_weights
from slurm_coloc.core.slurm.binding import Need, NodeUse
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeWeight
from slurm_coloc.core.slurm.controller import Controller
from slurm_coloc.core.slurm.job import JobView, Terms
from slurm_coloc.core.slurm.qos_limits import SiteLimits
from slurm_coloc.core.slurm.releases import json_layout, parse_release
from slurm_coloc.core.time.stretch import Reserved
from slurm_coloc.errors import SlurmError

EXCLUDED = Columns("ExcNodes:4096")
USERS_APART = 4  # so many users are asked for one by one
RUNNING = "--states=RUNNING,SUSPENDED,CONFIGURING,COMPLETING,STOPPED"

# What a command says that lacks the layout, or the plugins that write JSON at all.
NO_JSON = ("data_parser", "serializer", "unrecognized option", "Unable to find plugin")

log = structlog.get_logger()
T = TypeVar("T")


async def _known(answer: Awaitable[T], unknown: T) -> T:
    """``answer``, or ``unknown`` where slurmctld no longer knows the job."""
    try:
        return await answer
    except SlurmError as err:
        if "Invalid job id" in err.message:
            return unknown
        raise


class SlurmCommands(Orders):
    """Questions and orders to slurmctld by its commands (and, for ended jobs, to slurmdbd)."""

    def __init__(self, timeout_s: float, command_dir: Path | None = None) -> None:
        super().__init__(timeout_s, command_dir)
        self._uids: dict[str, int | None] = {}  # of users with limits of their own
        # Of the JSON that the commands write; "": not asked yet, None: text is read.
        self._layout: str | None = ""

    async def _squeue(self, columns: Columns, *chosen: str) -> str:
        return await self._columns(columns, "squeue", "--noheader", *chosen)

    async def _job_data(self, handle: str) -> list[data.Item] | None:
        return await self._data("jobs", "squeue", "--states=all", f"--jobs={handle}")

    async def _data(self, key: str, *argv: str) -> list[data.Item] | None:
        """A command's answer as JSON; None where the text must be read."""
        if self._layout == "":
            self._layout = await self._newest_layout()
        while self._layout is not None:
            try:
                text = await self._run(*argv, f"--json={self._layout}")
                # Thousands of nodes take a while: the event loop has submissions to answer.
                return await asyncio.to_thread(data.parse, text, key)
            except SlurmError as err:
                if err.code != "slurm-layout" and not any(word in err.message for word in NO_JSON):
                    raise
                # Slurm may have been upgraded below us, and the layout gone with it.
                newest = await self._newest_layout()
                self._layout = newest if newest != self._layout else None
                result = f"{self._layout or 'its text'} is read from now on"
                log.warning("slurm", error=err.message, result=result)
        return None

    async def _newest_layout(self) -> str | None:
        return json_layout(parse_release(await self._run("scontrol", "--version")))

    async def _nodes(self) -> list[Mapping[str, str]]:
        found = await self._data("nodes", "scontrol", "show", "node", "-d")
        # In threads, here and below: a thousand nodes take some 50 ms, and submissions wait.
        if found is not None:
            return await asyncio.to_thread(lambda: [data.node_pairs(node) for node in found])
        text = await self._run("scontrol", "show", "node", "-d", "-o")
        return [*await asyncio.to_thread(parse_lines, text)]

    async def _partitions(self) -> list[dict[str, str]]:
        return parse_lines(await self._run("scontrol", "show", "partition", "-o"))

    async def shape(self) -> ClusterShape:
        """The cluster's name, release, GPU nodes and partitions."""
        config, nodes, parts = await self.config(), await self._nodes(), await self._partitions()
        return await asyncio.to_thread(cluster_shape, config, nodes, parts)

    async def node_weights(self) -> tuple[NodeWeight, ...]:
        """The Weight of every node."""
        return tuple(node_weight(pairs) for pairs in await self._nodes())

    async def billing_weights(self) -> dict[str, str]:
        """TRESBillingWeights by partition, "" where there are none."""
        parts = await self._partitions()
        return {part.get("PartitionName", ""): part.get("TRESBillingWeights", "") for part in parts}

    async def usage(self) -> tuple[NodeUse, ...]:
        """What every node has and what is taken now, per device where the release tells."""
        nodes = await self._nodes()
        shards: dict[str, list[int]] = {}
        if not any(use.shows_per_gpu(pairs.get("GresUsed", "")) for pairs in nodes):
            shards = use.parse_shards_by_node(await self._squeue(use.NEED, RUNNING))
        return await asyncio.to_thread(
            lambda: tuple(use.node_use(pairs, shards) for pairs in nodes)
        )

    async def queue(self) -> list[Queued]:
        """Every job that waits or runs, an array as one; in no order (core/place/queue_order)."""
        text = await self._squeue(queue.QUEUE, queue.STATES)
        return await asyncio.to_thread(queue.parse_queue, text)

    async def need(self, job_id: int) -> Need | None:
        """What one node must give to a job; None when slurmctld no longer knows it."""
        text = await _known(
            self._squeue(use.NEED_WITH_NODES, "--states=all", f"--jobs={job_id}"), ""
        )
        return next(map(use.parse_need_with_nodes, text.split("\n")), None) if text else None

    async def excluded(self, handle: str) -> str:
        """The nodes that a job must not get (ExcNodeList), in Slurm's notation; "" for none."""
        text = await self._squeue(EXCLUDED, "--states=all", f"--jobs={handle}")
        found = text.partition("\n")[0].strip()
        if len(found) >= EXCLUDED.widths["ExcNodes"]:
            raise SlurmError(
                f"job {handle}: its list of excluded nodes is too long", "slurm-layout"
            )
        return given(found)

    async def extra(self, handle: str) -> str:
        """A waiting job's Extra, "" for none; SlurmError where slurmctld no longer knows it."""
        found = await self._job_data(handle)
        if found is None:
            jobs = parse_lines(await self._run("scontrol", "show", "job", "-o", handle))
            return given(jobs[0].get("Extra", "")) if jobs else ""
        if not found:
            raise SlurmError(f"job {handle}: Invalid job id", "slurm-refused")
        return given(found[0].get("extra", ""))

    async def terms(self, handle: str) -> Terms:
        """A job's nice value, time limit, reservations and Comment; SlurmError where slurmctld no
        longer knows it."""
        line = await self._squeue(TERMS, "--states=all", f"--jobs={handle}")
        if not line:
            raise SlurmError(f"job {handle}: Invalid job id", "slurm-refused")
        return parse_terms(" ".join(line.split("\n")))  # a Comment may have several lines

    async def reservations(self) -> list[Reserved]:
        """Reservations of nodes, whoever they are for."""
        return parse_reservations(await self._run("scontrol", "show", "reservation", "-o"))

    async def node_extra(self, node: str) -> str:
        """A node's Extra, "" for none (23.11 and later)."""
        found = await self._data("nodes", "scontrol", "show", "node", node)
        if found is not None:
            return data.node_pairs(found[0])["Extra"] if found else ""
        nodes = parse_lines(await self._run("scontrol", "show", "node", "-o", node))
        return given(nodes[0].get("Extra", "")) if nodes else ""

    async def placement(self, handle: str) -> str:
        """Node and GPU index of a running job or task, for people; "" where Slurm does not show it.
        By its number alone the last task of an array would be shown with all others."""
        found = await self._job_data(handle)
        if found is not None:
            return use.placed([place for job in found for place in data.places(job)])
        return use.parse_placement(await self._run("scontrol", "show", "job", "-d", handle))

    async def job(self, job_id: int) -> JobView | None:
        """One job; None when slurmctld no longer knows it. For the pending tasks of an array, which
        share its id, the first of them."""
        return await _known(self._job(job_id), None)

    async def _job(self, job_id: int) -> JobView | None:
        known = await self._job_data(str(job_id))
        if known is not None:
            values = next((job for job in known if job["job_id"] == job_id), None)
            return job_view(data.job_values(values)) if values else None
        return (await self.jobs([job_id])).get(job_id)

    async def jobs(self, job_ids: Collection[int]) -> dict[int, JobView]:
        """Those of these jobs that slurmctld knows, each as ``job`` tells it. squeue has slurmctld
        show all of its jobs where it is asked about more than one."""
        found: dict[int, JobView] = {}
        views = await _known(self._jobs(f"--jobs={','.join(map(str, sorted(job_ids)))}"), [])
        for view in sorted(views, key=lambda one: number(one.array_task or "")):
            if view.job_id in job_ids:
                found.setdefault(view.job_id, view)
        return found

    async def jobs_of(self, uids: Collection[int]) -> list[JobView]:
        """Every job of these users that slurmctld still knows, array tasks one by one.

        slurmctld finds one user's jobs without walking through all of them; for many users one walk
        is cheaper.
        """
        if len(uids) > USERS_APART:
            return await self._jobs()
        return [view for uid in sorted(uids) for view in await self._jobs(f"--user={uid}")]

    async def tasks_of(self, array_job_id: int) -> list[JobView]:
        """The tasks of an array that slurmctld still knows, those that wait one by one; tasks of
        one ``job_id`` stand in one record of slurmctld's."""
        return await _known(self._jobs(f"--jobs={array_job_id}"), [])

    async def waiting_in_vain(self) -> list[JobView]:
        """Jobs of anybody that wait for what can no longer be (DependencyNeverSatisfied), with
        ``dependency`` and what names them; the other fields are unset."""
        text = await self._squeue(queue.VAIN, "--states=PENDING", "--array")
        return await asyncio.to_thread(queue.parse_vain, text)

    async def waiting(self) -> list[JobView]:
        """Jobs of anybody that wait, an array's untouched rest as one, with owner, priority,
        partitions and QOS; the other fields are unset."""
        text = await self._squeue(queue.WAITING, "--states=PENDING")
        return await asyncio.to_thread(queue.parse_waiting, text)

    async def all_jobs(self) -> list[JobView]:
        """Every job that slurmctld still knows, array tasks one by one."""
        return await self._jobs()

    async def _jobs(self, *chosen: str) -> list[JobView]:
        text = await self._squeue(JOB, "--states=all", "--array", *chosen)
        # Thousands of lines take a while: the event loop has submissions to answer.
        return await asyncio.to_thread(parse_jobs, text)

    async def limits(self, cluster: str) -> SiteLimits:
        """QOS and association limits and the partitions' billing weights; SlurmError
        ``no-accounting`` where there is no slurmdbd."""
        show = ("sacctmgr", "-n", "-P", "show")
        qos = await self._accounting(*show, "qos", f"format={','.join(QOS_COLUMNS)}")
        form = f"format={','.join(ASSOC_COLUMNS)}"
        assocs = await self._accounting(*show, "assoc", f"cluster={cluster}", form)
        weights = await self.billing_weights()

        def read() -> SiteLimits:
            found = with_uids(parse_assocs(assocs), self._uids)
            prices = {name: parse_weights(text) for name, text in weights.items()}
            return SiteLimits(parse_qos(qos), found, prices)

        return await asyncio.to_thread(read)  # thousands of lines; a directory service may be slow

    async def clusters(self) -> list[str]:
        """The clusters of slurmdbd; SlurmError ``no-accounting`` where there is none."""
        words = ("sacctmgr", "-n", "-P", "show", "cluster", "format=Cluster")
        return (await self._accounting(*words)).split()

    async def controllers(self) -> list[Controller]:
        """Every slurmctld of the cluster and whether it answers, in slurm.conf's order.

        Past the gate: this is to be answered while slurmctld is away. Text on every release: its
        JSON tells nothing more. `scontrol ping` ends with 1 when one is DOWN.
        """
        return parse_ping(await self._command("scontrol", "ping", ends=(0, 1)))
