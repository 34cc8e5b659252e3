# SPDX-License-Identifier: Apache-2.0
"""Slurm through its own commands: what works on every release from 22.05 on.

data.py reads their JSON where the release has it, parse.py, shape.py and use.py their text: each
knows the differences between the releases that it reads. accounting.py asks slurmdbd, process.py
bounds a command.
"""

import asyncio
from collections.abc import Collection, Mapping
from pathlib import Path

import structlog

from slurm_coloc.adapters.slurm.commands import data, queue
from slurm_coloc.adapters.slurm.commands.accounting import Accounting
from slurm_coloc.adapters.slurm.commands.limits import (
    ASSOC_COLUMNS,
    QOS_COLUMNS,
    parse_assocs,
    parse_qos,
    with_uids,
)
from slurm_coloc.adapters.slurm.commands.parse import (
    FORMAT,
    LINE_FORMAT,
    TERMS_FORMAT,
    UNSET,
    VAIN_FORMAT,
    job_view,
    number,
    parse_config,
    parse_jobs,
    parse_line,
    parse_pairs,
    parse_ping,
    parse_release,
    parse_terms,
    parse_vain,
)
from slurm_coloc.adapters.slurm.commands.reservations import parse_reservations
from slurm_coloc.adapters.slurm.commands.shape import cluster_shape
from slurm_coloc.adapters.slurm.commands.use import (
    NEED_FORMAT,
    node_use,
    parse_need,
    parse_placement,
    parse_shards_by_node,
    placed,
    tells_per_gpu,
)
from slurm_coloc.adapters.slurm.gate import Gate
from slurm_coloc.core.place.queued_jobs import Queued
from slurm_coloc.core.slurm.billing import parse_weights
from slurm_coloc.core.slurm.binding import Need, NodeUse
from slurm_coloc.core.slurm.cluster import ClusterShape, Controller
from slurm_coloc.core.slurm.gres import PER_TASK, parse_gres, task_bind
from slurm_coloc.core.slurm.job import JobView, Terms
from slurm_coloc.core.slurm.qos_limits import SiteLimits
from slurm_coloc.core.time.stretch import Reserved
from slurm_coloc.errors import SlurmError

FIRST_SLASHED = (23,)  # the first release that writes gres/shard where 22.05 writes gres:shard
ONE_JOB = ("squeue", "--states=all")
EXCLUDED = 4096  # characters of a list of nodes; a longer one is cut there
USERS_APART = 4  # so many users are asked for one by one

# What a command says that lacks the layout, or the plugins that write JSON at all.
NO_JSON = ("data_parser", "serializer", "unrecognized option", "Unable to find plugin")

log = structlog.get_logger()


class SlurmCommands(Accounting):
    """Asks and tells slurmctld by its commands, each through the gate and with a time limit."""

    def __init__(self, timeout_s: float, command_dir: Path | None = None) -> None:
        super().__init__(timeout_s, command_dir)
        self._gate = Gate("slurmctld")
        self._release: tuple[int, ...] | None = None
        self._uids: dict[str, int | None] = {}  # of users with limits of their own
        self._json: bool | None = None  # whether scontrol has data.LAYOUT; None: not asked yet

    async def _run(self, *argv: str) -> str:
        return await self._gate.through(lambda: self._command(*argv))

    async def _data(self, key: str, *argv: str) -> list[data.Item] | None:
        """A command's answer as JSON; None where the text must be read."""
        if self._json is None:
            version = parse_release(await self._run("scontrol", "--version"))
            self._json = version >= data.FIRST_RELEASE
        if not self._json:
            return None
        try:
            text = await self._run(*argv, f"--json={data.LAYOUT}")
            # Thousands of nodes take a while: the event loop has submissions to answer.
            return await asyncio.to_thread(data.parse, text, key)
        except SlurmError as err:
            if err.code != "slurm-layout" and not any(word in err.message for word in NO_JSON):
                raise
            log.warning("slurm", error=err.message, result="its text is read from now on")
            self._json = False
            return None

    async def _nodes(self) -> list[Mapping[str, str]]:
        found = await self._data("nodes", "scontrol", "show", "node", "-d")
        if found is not None:
            return [data.node_pairs(node) for node in found]
        text = await self._run("scontrol", "show", "node", "-d", "-o")
        return [parse_pairs(line) for line in text.splitlines() if line.strip()]

    async def shape(self) -> ClusterShape:
        """The cluster's name, release, GPU nodes and partitions."""
        config = await self.config()
        nodes = await self._nodes()
        parts = await self._run("scontrol", "show", "partition", "-o")
        lines = [line for line in parts.splitlines() if line.strip()]
        self._release = parse_release(config.get("SLURM_VERSION", ""))
        return cluster_shape(config, nodes, [parse_pairs(line) for line in lines])

    async def config(self) -> dict[str, str]:
        """`scontrol show config`, under slurm.conf's names."""
        return parse_config(await self._run("scontrol", "show", "config"))

    async def billing_weights(self) -> dict[str, str]:
        """TRESBillingWeights by partition, "" where there are none."""
        text = await self._run("scontrol", "show", "partition", "-o")
        parts = [parse_pairs(line) for line in text.splitlines() if line.strip()]
        return {part.get("PartitionName", ""): part.get("TRESBillingWeights", "") for part in parts}

    async def usage(self) -> tuple[NodeUse, ...]:
        """What every node has and what is taken at this moment."""
        nodes = await self._nodes()
        shards: dict[str, list[int]] = {}
        if not any(tells_per_gpu(pairs.get("GresUsed", "")) for pairs in nodes):
            states = "--states=RUNNING,SUSPENDED,CONFIGURING,COMPLETING,STOPPED"
            form = f"--Format={NEED_FORMAT}"
            shards = parse_shards_by_node(await self._run("squeue", "--noheader", states, form))
        return tuple(node_use(pairs, shards) for pairs in nodes)

    async def queue(self) -> list[Queued]:
        """Every job that waits or runs, an array as one; in no order."""
        text = await self._run("squeue", "--noheader", queue.STATES, f"--Format={queue.FORMAT}")
        return await asyncio.to_thread(queue.parse_queue, text)

    async def need(self, job_id: int) -> Need | None:
        """What one node must give to a job; None when slurmctld no longer knows it."""
        base = ["squeue", "--noheader", "--states=all", f"--Format={NEED_FORMAT}"]
        try:
            lines = (await self._run(*base, f"--jobs={job_id}")).splitlines()
        except SlurmError as err:
            if "Invalid job id" in err.message:
                return None
            raise
        return parse_need(lines[0]) if lines else None

    async def excluded(self, handle: str) -> str:
        """The nodes that a job must not get (ExcNodeList), in Slurm's notation; "" for none."""
        columns = f"--Format=ExcNodes:{EXCLUDED}"
        lines = (await self._run(*ONE_JOB, "--noheader", columns, f"--jobs={handle}")).splitlines()
        found = lines[0].strip() if lines else ""
        if len(found) >= EXCLUDED:
            raise SlurmError(
                f"job {handle}: its list of excluded nodes is too long", "slurm-layout"
            )
        return "" if found in UNSET else found

    async def extra(self, handle: str) -> str:
        """A waiting job's Extra, "" for none; SlurmError where slurmctld no longer knows it."""
        found = await self._data("jobs", *ONE_JOB, f"--jobs={handle}")
        if found is None:
            text = await self._run("scontrol", "show", "job", "-o", handle)
            extra = parse_pairs(next(iter(text.splitlines()), "")).get("Extra", "")
        elif found:
            extra = found[0].get("extra", "")
        else:
            raise SlurmError(f"job {handle}: Invalid job id", "slurm-refused")
        return "" if extra in UNSET else extra

    async def terms(self, handle: str) -> Terms:
        """A job's nice value, time limit, reservations and Comment."""
        columns = f"--Format={TERMS_FORMAT}"
        lines = (await self._run(*ONE_JOB, "--noheader", columns, f"--jobs={handle}")).splitlines()
        if not lines:
            raise SlurmError(f"job {handle}: Invalid job id", "slurm-refused")
        return parse_terms(" ".join(lines))  # a Comment may have several

    async def reservations(self) -> list[Reserved]:
        """Reservations of nodes, whoever they are for."""
        return parse_reservations(await self._run("scontrol", "show", "reservation", "-o"))

    async def signal(self, handle: str, name: str) -> None:
        """Send a signal to the batch script and all steps of a running job."""
        await self._run("scancel", "--full", f"--signal={name}", handle)

    async def notify(self, handle: str, text: str) -> None:
        """A line in the standard error of a running job's batch script."""
        await self._run("scontrol", "notify", handle, text)

    async def cancel(self, handle: str) -> None:
        """End a job."""
        await self._run("scancel", handle)

    async def placement(self, job_id: int) -> str:
        """Node and GPU index of a running job, for people; "" where Slurm does not show it."""
        found = await self._data("jobs", *ONE_JOB, f"--jobs={job_id}")
        if found is not None:
            return placed([place for job in found for place in data.places(job)])
        return parse_placement(await self._run("scontrol", "show", "job", "-d", str(job_id)))

    async def job(self, job_id: int) -> JobView | None:
        """One job; None when slurmctld no longer knows it. For the pending tasks of an array, which
        share its id, the first of them."""
        try:
            known = await self._data("jobs", *ONE_JOB, f"--jobs={job_id}")
            if known is not None:
                values = next((job for job in known if job["job_id"] == job_id), None)
                return job_view(data.job_values(values)) if values else None
            found = await self._jobs(f"--jobs={job_id}")
        except SlurmError as err:
            if "Invalid job id" in err.message:
                return None
            raise
        own = [view for view in found if view.job_id == job_id]
        return min(own, key=lambda view: number(view.array_task or ""), default=None)

    async def jobs_of(self, uids: Collection[int]) -> list[JobView]:
        """Every job of these users that slurmctld still knows.

        slurmctld looks up one user's jobs without walking through all of them; for many users one
        walk is cheaper.
        """
        if len(uids) > USERS_APART:
            return await self._jobs()
        return [view for uid in sorted(uids) for view in await self._jobs(f"--user={uid}")]

    async def tasks_of(self, array_job_id: int) -> list[JobView]:
        """The tasks of an array that slurmctld still knows."""
        try:
            return await self._jobs(f"--jobs={array_job_id}")
        except SlurmError as err:
            if "Invalid job id" in err.message:
                return []
            raise

    async def waiting_in_vain(self) -> list[JobView]:
        """Jobs of anybody whose dependency can no longer be met."""
        base = ("squeue", "--noheader", "--states=PENDING", "--array")
        text = await self._run(*base, f"--Format={VAIN_FORMAT}")
        return await asyncio.to_thread(parse_vain, text)

    async def waiting(self) -> list[JobView]:
        """Jobs of anybody that wait, with their place in the queue."""
        base = ("squeue", "--noheader", "--states=PENDING")
        text = await self._run(*base, f"--Format={LINE_FORMAT}")
        return await asyncio.to_thread(parse_line, text)

    async def all_jobs(self) -> list[JobView]:
        """Every job that slurmctld still knows."""
        return await self._jobs()

    async def _jobs(self, *chosen: str) -> list[JobView]:
        base = ("squeue", "--noheader", "--states=all", "--array", f"--Format={FORMAT}")
        text = await self._run(*base, *chosen)
        # Thousands of lines take a while: the event loop has submissions to answer.
        return await asyncio.to_thread(parse_jobs, text)

    async def limits(self, cluster: str) -> SiteLimits:
        """QOS and association limits and the partitions' billing weights."""
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

    async def controllers(self) -> list[Controller]:
        """Every slurmctld of the cluster and whether it answers.

        Past the gate: this is to be answered while slurmctld is away. Text on every release: its
        JSON tells nothing more. `scontrol ping` ends with 1 when one is DOWN.
        """
        return parse_ping(await self._command("scontrol", "ping", ends=(0, 1)))

    async def requeue(self, handle: str) -> None:
        """Put an ended or running job back into the queue."""
        await self._run("scontrol", "requeue", handle)

    async def hold(self, handle: str) -> None:
        """Hold a pending job."""
        await self._run("scontrol", "hold", handle)

    async def requeue_hold(self, handle: str) -> None:
        """Put an ended or running job back into the queue, held."""
        await self._run("scontrol", "requeuehold", handle)

    async def release(self, handle: str) -> None:
        """End the hold of a pending job."""
        await self._run("scontrol", "release", handle)

    async def set_gres(self, handle: str, tres: str) -> None:
        """Replace what a pending job asks for on each node or, behind ``per-task:``, for each task.

        22.05 takes ``gres/shard:39`` for a job that stands as ``gres:shard:5``, shows it, and goes
        on with 5; only its own ``gres:shard:39`` really changes it. ``gres:gpu:1`` it refuses. A
        GPU of one type it joins to that of another, unless the job asks for nothing between: so a
        typed GPU takes two updates there, for a job that cannot start meanwhile.
        """
        if tres.startswith(PER_TASK):
            task = tres.removeprefix(PER_TASK)
            await self.update(handle, TresPerTask=task, TresBind=task_bind(task))
            return
        if self._release is None:
            await self.shape()
        if self._release and self._release < FIRST_SLASHED:
            tres = tres.replace("gres/shard", "gres:shard")
            if any(item.name == "gpu" and item.type for item in parse_gres(tres)):
                tres = tres.replace("gres/gpu", "gres:gpu")
                await self.update(handle, TresPerNode="")
        await self.update(handle, TresPerNode=tres)

    async def node_extra(self, node: str) -> str:
        """A node's Extra, "" for none (23.11 and later)."""
        found = await self._data("nodes", "scontrol", "show", "node", node)
        if found is not None:
            return data.node_pairs(found[0])["Extra"] if found else ""
        text = await self._run("scontrol", "show", "node", "-o", node)
        extra = parse_pairs(next(iter(text.splitlines()), "")).get("Extra", "")
        return "" if extra in UNSET else extra

    async def set_node_extra(self, node: str, text: str) -> None:
        """Replace a node's Extra (23.11 and later)."""
        await self._run("scontrol", "update", f"NodeName={node}", f"Extra={text}")

    async def update(self, handle: str, **fields: str | int) -> None:
        """``scontrol update``; raises SlurmError with Slurm's own words when it is refused."""
        changes = [f"{name}={value}" for name, value in fields.items()]
        await self._run("scontrol", "update", f"JobId={handle}", *changes)
