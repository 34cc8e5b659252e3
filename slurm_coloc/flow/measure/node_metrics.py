# SPDX-License-Identifier: Apache-2.0
"""What the agent tells Prometheus of its node, put together when it asks."""

import asyncio
import pwd
import time
from collections.abc import Callable, Collection
from typing import cast

from slurm_coloc import __version__
from slurm_coloc.adapters.hookenv import HookSettings
from slurm_coloc.adapters.link.limited import limited
from slurm_coloc.adapters.prometheus.port import MetricsPort, Settings
from slurm_coloc.core.gpu.telemetry.reading import Reading
from slurm_coloc.core.metrics.catalog import Names
from slurm_coloc.core.metrics.node import GpuNow, JobNow, NodeNow, Owner, of_node
from slurm_coloc.core.metrics.series import Histogram, Series
from slurm_coloc.flow.measure.measure import Measurer
from slurm_coloc.flow.node.jobs_here import Job

NAME_S = 1.0  # for the name of a user
OLD_S = 30.0  # figures that are older are not told
KEPT_S = 600.0  # names are asked for again then: the name server may have been away


class NodeMetrics:
    """``private``: whether users' names are left out: until colocd has said that they may be told.
    ``linked``: whether there is a link to colocd; ``spooled``: reports that it has not taken."""

    def __init__(
        self,
        settings: HookSettings,
        measurer: Measurer | None,
        sampled_s: Callable[[], float],
        epilogs: Histogram,
        spooled: Callable[[], int],
    ) -> None:
        """``sampled_s``: when the last sample was taken (monotonic), 0 before the first."""
        self._names = cast(Collection[Names], settings.names)
        self._measurer = measurer
        self._sampled_s = sampled_s
        self._epilogs = epilogs
        self._spooled = spooled
        self._users: dict[int, str] = {}
        self._learned_s = time.monotonic()
        self.private = True
        self.linked = False
        where = Settings(settings.address, settings.agent_port, settings.allow, settings.token_file)
        self._port = MetricsPort(where, self.series)

    async def run(self) -> None:
        """Serve until cancelled, where the site wants it."""
        await self._port.run()

    async def series(self) -> list[Series]:
        """The node's series of now."""
        measurer, sampled_s = self._measurer, self._sampled_s()
        jobs = {one.job_id: one for one in measurer.jobs()} if measurer else {}
        if time.monotonic() - self._learned_s > KEPT_S:
            self._users, self._learned_s = {}, time.monotonic()
        if not self.private:
            await self._learn({one.uid for one in jobs.values()} - self._users.keys())
        # Where the driver hangs, what it said last may long be over.
        told = None if sampled_s and time.monotonic() - sampled_s > OLD_S else measurer
        now_s = time.time()
        idle = {one["job_id"]: now_s - one["since_s"] for one in told.idle} if told else {}
        now = NodeNow(
            version=__version__,
            linked=self.linked,
            spooled=self._spooled(),
            age_s=time.monotonic() - sampled_s if sampled_s else None,
            gpus=self._gpus(told, jobs) if told else (),
            over_mib=told.overruns.over_mib() if told else {},
            idle_s=idle,
            overruns=measurer.overruns.count if measurer else 0,
            prolog=measurer.prologs.times if measurer else Histogram(self._epilogs.bounds),
            epilog=self._epilogs,
        )
        return of_node(now, self._names)

    async def _learn(self, uids: Collection[int]) -> None:
        """Find the names of users; a name server that does not answer holds nothing else."""
        for uid in uids:
            self._users[uid] = await asyncio.to_thread(_name_of, uid)

    def _gpus(self, measurer: Measurer, jobs: dict[int, Job]) -> tuple[GpuNow, ...]:
        figures = {one["uuid"]: one for one in measurer.figures}
        found = []
        for reading, _ in measurer.rolling.on_gpus:
            figure = figures.get(reading.uuid)
            if figure is None:
                continue
            there = tuple(
                self._job(jobs.get(one["job_id"]), one["job_id"], one["smact"], reading)
                for one in figure["jobs"]
            )
            found.append(GpuNow(reading, figure["smact"], figure["power_w"], there))
        return tuple(found)

    def _job(self, job: Job | None, job_id: int, smact: float | None, reading: Reading) -> JobNow:
        if job is None:  # no Prolog of ours was there
            return JobNow(job_id, Owner(), "", None, smact)
        uid, user = ("", "") if self.private else (str(job.uid), self._users.get(job.uid, ""))
        owner = Owner(uid, user, "" if self.private else job.account)
        promised_mib = job.promised_on(reading.uuid)
        if job.promised_mib == 0 and reading.uuid in job.uuids:
            promised_mib = reading.total_mib
        return JobNow(job_id, owner, job.method, promised_mib, smact)


def _name_of(uid: int) -> str:
    """The user's name, else the uid as text."""
    try:
        return limited(lambda: pwd.getpwuid(uid).pw_name, NAME_S)
    except (KeyError, TimeoutError):
        return str(uid)
