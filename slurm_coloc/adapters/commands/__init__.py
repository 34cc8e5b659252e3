# SPDX-License-Identifier: Apache-2.0
"""Slurm through its own commands: what works on every release from 22.05 on.

parse.py and use.py read the answers and know the differences between releases.
"""

import asyncio
import os
from collections.abc import Collection
from pathlib import Path

from slurm_coloc.adapters.commands.parse import (
    FORMAT,
    parse_config,
    parse_jobs,
    parse_node,
    parse_pairs,
    parse_partition,
    parse_release,
)
from slurm_coloc.adapters.commands.use import (
    NEED_FORMAT,
    parse_need,
    parse_placement,
    parse_shards_by_node,
    parse_use,
    tells_per_gpu,
)
from slurm_coloc.core.binding import Need, NodeUse
from slurm_coloc.core.cluster import ClusterShape
from slurm_coloc.core.job import JobView
from slurm_coloc.errors import SlurmError

FIRST_SLASHED = (23,)  # the first release that writes gres/shard where 22.05 writes gres:shard
USERS_APART = 4  # so many users are asked for one by one


def _environment() -> dict[str, str]:
    """Ours, without what would change the commands' output; times as Unix seconds."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SQUEUE_", "SINFO_", "SCONTROL_"))
    }
    return {**kept, "SLURM_TIME_FORMAT": "%s"}


class SlurmCommands:
    """Asks and tells slurmctld. Every call has a time limit, and at most two run at once, so that
    a busy or restarting slurmctld never piles up work here."""

    def __init__(self, timeout_s: float, command_dir: Path | None = None) -> None:
        self._timeout_s = timeout_s
        self._dir = command_dir
        self._slots = asyncio.Semaphore(2)
        self._release: tuple[int, ...] | None = None

    async def _run(self, *argv: str) -> str:
        program = str(self._dir / argv[0]) if self._dir else argv[0]
        async with self._slots:
            try:
                process = await asyncio.create_subprocess_exec(
                    program,
                    *argv[1:],
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    env=_environment(),
                )
            except OSError as err:
                raise SlurmError(f"{argv[0]}: cannot be started: {err}") from err
            try:
                out, err_out = await asyncio.wait_for(process.communicate(), self._timeout_s)
            except TimeoutError:
                process.kill()
                await process.wait()
                raise SlurmError(
                    f"{argv[0]}: no answer within {self._timeout_s:g} s", "slurm-timeout"
                ) from None
        if process.returncode:
            text = err_out.decode(errors="replace").strip().splitlines()
            raise SlurmError(f"{' '.join(argv[:3])}: {text[-1] if text else 'failed'}")
        # One character a byte: squeue pads its columns in bytes, so a name of a site in UTF-8 must
        # not shift what follows it. What we read ourselves is ASCII.
        return out.decode("latin-1")

    async def shape(self) -> ClusterShape:
        """The cluster's name, release, GPU nodes and partitions."""
        config = await self.config()
        nodes = await self._run("scontrol", "show", "node", "-o")
        parts = await self._run("scontrol", "show", "partition", "-o")
        self._release = parse_release(config.get("SLURM_VERSION", ""))
        return ClusterShape(
            name=config.get("ClusterName", ""),
            release=self._release,
            nodes=tuple(node for line in nodes.splitlines() if (node := parse_node(line))),
            partitions=tuple(
                parse_partition(line, config.get("JobDefaults", ""))
                for line in parts.splitlines()
                if line.strip()
            ),
        )

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
        nodes = await self._run("scontrol", "show", "node", "-d", "-o")
        shards: dict[str, list[int]] = {}
        if not tells_per_gpu(nodes):
            states = "--states=RUNNING,SUSPENDED,CONFIGURING,COMPLETING,STOPPED"
            form = f"--Format={NEED_FORMAT}"
            shards = parse_shards_by_node(await self._run("squeue", "--noheader", states, form))
        return tuple(parse_use(line, shards) for line in nodes.splitlines() if line.strip())

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

    async def placement(self, job_id: int) -> str:
        """Node and GPU index of a running job, for people; "" where Slurm does not show it."""
        return parse_placement(await self._run("scontrol", "show", "job", "-d", str(job_id)))

    async def job(self, job_id: int) -> JobView | None:
        """One job; None when slurmctld no longer knows it."""
        try:
            found = await self._jobs(f"--jobs={job_id}")
        except SlurmError as err:
            if "Invalid job id" in err.message:
                return None
            raise
        return next((view for view in found if view.job_id == job_id), None)

    async def jobs_of(self, uids: Collection[int]) -> list[JobView]:
        """Every job of these users that slurmctld still knows.

        slurmctld looks up one user's jobs without walking through all of them; for many users one
        walk is cheaper.
        """
        if len(uids) > USERS_APART:
            return await self._jobs()
        return [view for uid in sorted(uids) for view in await self._jobs(f"--user={uid}")]

    async def _jobs(self, *chosen: str) -> list[JobView]:
        base = ("squeue", "--noheader", "--states=all", "--array", f"--Format={FORMAT}")
        text = await self._run(*base, *chosen)
        # Thousands of lines take a while: the event loop has submissions to answer.
        return await asyncio.to_thread(parse_jobs, text)

    async def requeue_hold(self, handle: str) -> None:
        """Put an ended or running job back into the queue, held."""
        await self._run("scontrol", "requeuehold", handle)

    async def release(self, handle: str) -> None:
        """End the hold of a pending job."""
        await self._run("scontrol", "release", handle)

    async def set_gres(self, handle: str, tres: str) -> None:
        """Replace what a pending job asks for on each node.

        22.05 takes ``gres/shard:39`` for a job that stands as ``gres:shard:5``, shows it, and goes
        on with 5; only its own ``gres:shard:39`` really changes it. ``gres:gpu:1`` it refuses.
        """
        if self._release is None:
            await self.shape()
        if self._release and self._release < FIRST_SLASHED:
            tres = tres.replace("gres/shard", "gres:shard")
        await self.update(handle, TresPerNode=tres)

    async def update(self, handle: str, **fields: str | int) -> None:
        """``scontrol update``; raises SlurmError with Slurm's own words when it is refused."""
        changes = [f"{name}={value}" for name, value in fields.items()]
        await self._run("scontrol", "update", f"JobId={handle}", *changes)
