# SPDX-License-Identifier: Apache-2.0
"""Slurm through pyslurm, where it is installed for slurmctld's release; the commands do the rest.

pyslurm is bound to one release of Slurm: another one does not build, or does not load. So it is
tried at run time, in a child process (child.py, worker.py), and what fails there falls back.

What the commands do here too, and why (read in pyslurm 25.11.2's source):

- jobs of ours whose request stands in tres_per_task, which pyslurm does not tell;
- usage per device: Node tells what is allocated, not on which GPU;
- tasks of an array, and whatever acts on one: Job takes a number, ``<array>_<task>`` is none;
- ended jobs: db.Jobs keeps one record a job id, so the runs of a requeued job are lost;
- controllers: ping() raises for one that is down, as for an index that there is not;
- the shape of the cluster: it is asked for rarely, and steering needs all that scontrol tells;
- the whole slurm.conf under its own names, limits, placement and needs.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog

from slurm_coloc.adapters.slurm.bindings.child import Child, Fault
from slurm_coloc.adapters.slurm.commands import SlurmCommands
from slurm_coloc.adapters.slurm.commands.parse import job_view, tasks_in
from slurm_coloc.core.slurm.job import JobView
from slurm_coloc.core.slurm.releases import parse_release
from slurm_coloc.errors import SlurmError

ONE_BY_ONE = 4  # jobs of which the commands are asked one by one, and not about all of the user's
MAX_DEATHS = 3  # so many deaths of the worker in a row end its use

# Fields of ``scontrol update`` that JobSubmitDescription has too, under other names.
FIELDS = {
    "Priority": "priority",
    "Nice": "nice",
    "QOS": "qos",
    "AdminComment": "admin_comment",
    "StartTime": "begin_time",
    "Dependency": "dependencies",
    "TresPerNode": "gres_per_node",
}

log = structlog.get_logger()


def description(fields: dict[str, str | int]) -> dict[str, Any] | None:
    """Fields of an update as JobSubmitDescription's; None where it cannot say them: it knows no
    TRES but gres, and takes "" and a nice of 0 for unset."""
    found = {FIELDS.get(name, ""): value for name, value in fields.items()}
    gres = str(found.get("gres_per_node", "gres/"))
    if "" in found or "" in found.values() or found.get("nice") == 0:
        return None
    if not all(item.startswith("gres/") for item in gres.split(",")):
        return None
    if "gres_per_node" in found:
        found["gres_per_node"] = gres.replace("gres/", "")
    return found


def _incomplete(values: Mapping[str, str]) -> bool:
    """Whether a job that may be ours has something that pyslurm does not tell: a request per task;
    or an exit code of 9, which is how it also shows 137, a SIGKILL (core/recover/outcome)."""
    if not values["admin_comment"]:
        return False
    return not values["tres-per-node"] or values["exit_code"].startswith("9:")


class SlurmBindings(SlurmCommands):
    """pyslurm first. ``forced``: a pyslurm that cannot be used is an error, not a reason to fall
    back on the commands."""

    def __init__(
        self, timeout_s: float, command_dir: Path | None = None, forced: bool = False
    ) -> None:
        super().__init__(timeout_s, command_dir)
        self._child = Child(timeout_s)
        self._forced = forced
        self._usable: bool | None = None  # None: not tried yet
        self._deaths = 0
        self._beyond: set[str] = set()  # operations that this pyslurm cannot do

    async def _call(self, op: str, **arguments: Any) -> Any:
        """pyslurm's answer; raises Fault where the commands must be asked."""
        if self._usable is False or op in self._beyond:
            raise Fault("not usable")
        try:
            return await self._gate.through(lambda: self._called(op, **arguments))
        except Fault as err:
            if self._forced:
                raise SlurmError(f"pyslurm: {err}", "no-pyslurm") from err
            log.warning("pyslurm", op=op, error=str(err), result="the commands are used")
            self._beyond.add(op)
            raise

    async def _called(self, op: str, **arguments: Any) -> Any:
        try:
            if self._usable is None:
                await self._try()
            answer = await self._child.call(op, **arguments)
        except SlurmError as err:
            if err.code != "worker-died":
                self._deaths = 0
                raise
            self._deaths += 1
            if self._usable is None or self._deaths >= MAX_DEATHS:
                self._usable = None if self._forced else False
                raise Fault(err.message) from err
            raise SlurmError(err.message, "slurm-away") from err
        self._deaths = 0
        return answer

    async def _try(self) -> None:
        """Whether pyslurm loads here, and is of slurmctld's release. That is asked of the commands
        first: a pyslurm of a newer release than slurmctld gets no answer from it, as from one that
        is away. Raises Fault, or SlurmError where slurmctld answers nobody."""
        try:
            await self._child.start()
            version = (await self.config()).get("SLURM_VERSION", "")
            if parse_release(self._child.version)[:2] != parse_release(version)[:2]:
                raise Fault(f"{self._child.version} is not for slurmctld {version}")
            try:
                await self._child.call("version")
            except SlurmError as err:
                if err.code == "worker-died":
                    raise
                await self.config()  # it may have gone just now
                raise Fault(f"slurmctld answers scontrol and not it: {err.message}") from err
        except Fault:
            self._usable = None if self._forced else False
            await self._child.close()
            raise
        self._usable = True
        log.info("pyslurm", version=self._child.version, result="used")

    async def job(self, job_id: int) -> JobView | None:
        """One job; None when slurmctld no longer knows it."""
        try:
            values = await self._call("job", job_id=job_id)
        except Fault:
            return await super().job(job_id)
        except SlurmError as err:
            if "Invalid job id" in err.message:
                return None
            raise
        if _incomplete(values):
            return await super().job(job_id)
        view = job_view(values)
        first = next(iter(tasks_in(values["Waiting"])), None)
        return replace(view, array_task=first) if first else view

    async def jobs_of(self, uids: Collection[int]) -> list[JobView]:
        """Every job of these users that slurmctld still knows, array tasks one by one."""
        try:
            found = await self._call("jobs", uids=sorted(uids))
        except Fault:
            return await super().jobs_of(uids)
        lacking = [values for values in found if _incomplete(values)]
        if len(lacking) > ONE_BY_ONE or any(values["Waiting"] for values in lacking):
            return await super().jobs_of(uids)
        told = {values["JobID"]: await super(SlurmBindings, self).job(int(values["JobID"]))
                for values in lacking}  # fmt: skip
        views: list[JobView] = []
        for values in found:
            if values["JobID"] in told:
                views += filter(None, [told[values["JobID"]]])
                continue
            view = job_view(values)
            tasks = [replace(view, array_task=task) for task in tasks_in(values["Waiting"])]
            views += tasks or [view]
        return views

    async def _order(self, op: str, handle: str, **arguments: Any) -> bool:
        """Whether pyslurm gave the order; else the commands must."""
        if not handle.isdigit():
            return False
        try:
            await self._call(op, job_id=int(handle), **arguments)
        except Fault:
            return False
        return True

    async def requeue(self, handle: str) -> None:
        """Put an ended or running job back into the queue."""
        if not await self._order("requeue", handle, hold=False):
            await super().requeue(handle)

    async def requeue_hold(self, handle: str) -> None:
        """Put an ended or running job back into the queue, held."""
        if not await self._order("requeue", handle, hold=True):
            await super().requeue_hold(handle)

    async def hold(self, handle: str) -> None:
        """Hold a pending job."""
        if not await self._order("hold", handle):
            await super().hold(handle)

    async def release(self, handle: str) -> None:
        """End the hold of a pending job."""
        if not await self._order("release", handle):
            await super().release(handle)

    async def update(self, handle: str, **fields: str | int) -> None:
        """``scontrol update``, as far as JobSubmitDescription can say it."""
        known = description(fields)
        if known is None or not await self._order("modify", handle, fields=known):
            await super().update(handle, **fields)
