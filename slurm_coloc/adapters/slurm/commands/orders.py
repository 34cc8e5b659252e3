# SPDX-License-Identifier: Apache-2.0
"""What colocd orders of slurmctld. ``handle`` is ``JobView.handle``.

An order that got no answer may still be carried out later: ask what Slurm shows before the next.
"""

from pathlib import Path

from slurm_coloc.adapters.slurm.commands import process
from slurm_coloc.adapters.slurm.commands.accounting import Accounting
from slurm_coloc.adapters.slurm.commands.columns import Columns, Marks
from slurm_coloc.adapters.slurm.commands.parse import parse_config
from slurm_coloc.adapters.slurm.gate import Gate
from slurm_coloc.core.slurm.gres import PER_TASK, parse_gres, update_fields
from slurm_coloc.core.slurm.releases import SLASHED_GRES, Release, parse_release


class Orders(Accounting):
    """Orders to slurmctld, each through the gate and with a time limit."""

    def __init__(self, timeout_s: float, command_dir: Path | None = None) -> None:
        super().__init__(timeout_s, command_dir)
        self._gate = Gate("slurmctld")
        self._release: Release | None = None  # slurmctld's

    async def _run(self, *argv: str) -> str:
        return await self._gate.through(lambda: self._command(*argv))

    async def _columns(self, columns: Columns, *argv: str) -> str:
        """Lines of squeue's columns, one character a byte."""
        marks = Marks.drawn()
        form = {"SQUEUE_FORMAT2": columns.marked(marks)}

        async def command() -> str:
            found = await process.run(argv, self._dir, self._timeout_s, more=form)
            return marks.lines(found.decode("latin-1"))

        return await self._gate.through(command)

    async def config(self) -> dict[str, str]:
        """slurm.conf as slurmctld runs it, under its own names."""
        found = parse_config(await self._run("scontrol", "show", "config"))
        self._release = parse_release(found.get("SLURM_VERSION", ""))
        return found

    async def signal(self, handle: str, name: str) -> None:
        """Send a signal to the batch script and all steps of a running job."""
        await self._run("scancel", "--full", f"--signal={name}", handle)

    async def notify(self, handle: str, text: str) -> None:
        """Write a line to the standard error of a running job's batch script."""
        await self._run("scontrol", "notify", handle, text)

    async def cancel(self, handle: str) -> None:
        """End a job."""
        await self._run("scancel", handle)

    async def requeue(self, handle: str) -> None:
        """Put an ended or running job back into the queue."""
        await self._run("scontrol", "requeue", handle)

    async def requeue_hold(self, handle: str) -> None:
        """Put an ended or running job back into the queue, held."""
        await self._run("scontrol", "requeuehold", handle)

    async def hold(self, handle: str) -> None:
        """Hold a pending job (as the administrator: its owner cannot release it)."""
        await self._run("scontrol", "hold", handle)

    async def release(self, handle: str) -> None:
        """End the hold of a pending job."""
        await self._run("scontrol", "release", handle)

    async def update(self, handle: str, **fields: str | int) -> None:
        """Change fields of a job under ``scontrol update``'s names; a SlurmError has Slurm's own
        words when it is refused."""
        changes = [f"{name}={value}" for name, value in fields.items()]
        await self._run("scontrol", "update", f"JobId={handle}", *changes)

    async def set_gres(self, handle: str, tres: str) -> None:
        """Replace what a pending job asks for on each node (``gres/gpu:1``) or, behind
        ``per-task:``, for each task (core/slurm/gres.gpu_request).

        22.05 takes ``gres/shard:39`` for a job that stands as ``gres:shard:5``, shows it, and goes
        on with 5; only its own ``gres:shard:39`` really changes it. ``gres:gpu:1`` it refuses. A
        GPU of one type it joins to that of another, unless the job asks for nothing between: so a
        typed GPU takes two updates there, for a job that cannot start meanwhile.
        """
        if tres.startswith(PER_TASK):
            await self.update(handle, **update_fields(tres))
            return
        if self._release is None:
            await self.config()
        if self._release and not SLASHED_GRES.holds(self._release):
            tres = tres.replace("gres/shard", "gres:shard")
            if any(item.name == "gpu" and item.type for item in parse_gres(tres)):
                tres = tres.replace("gres/gpu", "gres:gpu")
                await self.update(handle, TresPerNode="")
        await self.update(handle, TresPerNode=tres)

    async def set_node_extra(self, node: str, text: str) -> None:
        """Replace a node's Extra (23.11 and later)."""
        await self._run("scontrol", "update", f"NodeName={node}", f"Extra={text}")
