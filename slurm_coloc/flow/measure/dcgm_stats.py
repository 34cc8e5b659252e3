# SPDX-License-Identifier: Apache-2.0
"""Stage measure: DCGM's job statistics for runs that have whole GPUs to themselves ([agent]
job_stats).

Begun and read here, in the agent, so that no hook waits for DCGM: the last reading is up to READ_S
older than the run's end. Groups and jobs live in the host engine and survive the agent: what is
there of a run that goes on is used again, the rest is removed.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from slurm_coloc.adapters.dcgm.jobs import JobStatistics, name_of
from slurm_coloc.core.gpu.sharing import Method
from slurm_coloc.errors import GpuError
from slurm_coloc.flow.node.jobs_here import Job

log = structlog.get_logger()

POLL_S = 1.0
FIRST_S, READ_S = 12.0, 30.0  # DCGM's first sample comes after ten seconds
AGAIN_S = 60.0  # after a refusal
MOST_GPUS = 16  # of one run

Plain = dict[str, Any]


@dataclass(slots=True)
class _Run:
    group: int
    uuids: Mapping[int, str]
    due_s: float


class JobStats:
    """The statistics of this node's runs. ``figures`` and ``why`` are by name of the run."""

    def __init__(
        self,
        engine: JobStatistics,
        numbers: Callable[[], Mapping[str, int]],
        jobs: Callable[[], Iterable[Job]],
    ) -> None:
        """``numbers``: DCGM's number of each GPU by UUID, {} while DCGM is not there."""
        self._engine = engine
        self._numbers = numbers
        self._jobs = jobs
        self._runs: dict[str, _Run] = {}
        self._left: dict[str, int] | None = None  # groups of an agent before this one
        self._later: dict[str, float] = {}
        self.figures: dict[str, Plain] = {}
        self.why: dict[str, str] = {}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.round(time.monotonic())
            except GpuError as err:
                log.warning("job statistics", error=err.message)
                await asyncio.sleep(AGAIN_S)
            await asyncio.sleep(POLL_S)

    async def round(self, now_s: float) -> None:
        """Begin, read and remove what is due. Raises GpuError where DCGM says nothing at all."""
        numbers = self._numbers()
        if not numbers:
            return
        wanted = {name_of(job.job_id, job.restart): job for job in self._jobs() if _alone(job)}
        if self._left is None:
            self._left = await self._engine.groups()
        for name, group in list(self._left.items()):
            if name not in wanted:
                await self._engine.remove(name, group)
                del self._left[name]
        for name in [name for name in self._runs if name not in wanted]:
            await self._engine.remove(name, self._runs.pop(name).group)
        self.figures = {name: one for name, one in self.figures.items() if name in wanted}
        self._later = {name: until for name, until in self._later.items() if name in wanted}
        self.why = {name: text for name, text in self.why.items() if name in wanted}
        for name, job in wanted.items():
            if self._later.get(name, 0.0) > now_s:
                continue
            try:
                await self._follow(name, job, numbers, now_s)
            except GpuError as err:
                log.warning("job statistics", jobid=job.job_id, error=err.message)
                self.why[name], self._later[name] = err.message, now_s + AGAIN_S

    async def _follow(self, name: str, job: Job, numbers: Mapping[str, int], now_s: float) -> None:
        run = self._runs.get(name)
        if run is None:
            self._runs[name] = await self._begin(name, job, numbers, now_s)
        elif run.due_s <= now_s:
            run.due_s = now_s + READ_S
            try:
                found = await self._engine.read(name)
            except GpuError:
                # A host engine that was started again knows nothing of it: begin anew.
                await self._engine.remove(name, self._runs.pop(name).group)
                raise
            gpus = [{"uuid": run.uuids[n], **one} for n, one in found.items() if n in run.uuids]
            self.figures[name] = {"at_s": round(time.time(), 1), "gpus": gpus}
            self.why.pop(name, None)

    async def _begin(self, name: str, job: Job, numbers: Mapping[str, int], now_s: float) -> _Run:
        unknown = [uuid for uuid in job.uuids if uuid not in numbers]
        if unknown:
            raise GpuError(f"DCGM does not know {unknown[0]}", "dcgm")
        uuids = {numbers[uuid]: uuid for uuid in job.uuids}
        group = (self._left or {}).pop(name, None)
        if group is not None:
            return _Run(group, uuids, now_s)
        group = await self._engine.begin(name, sorted(uuids))
        self.why[name] = "DCGM has no sample yet"
        return _Run(group, uuids, now_s + FIRST_S)


def _alone(job: Job) -> bool:
    """Whether the run has whole GPUs to itself: of any other DCGM's figures are not its own."""
    whole = all(uuid.startswith("GPU-") for uuid in job.uuids)
    return job.method == Method.ALONE and whole and 0 < len(job.uuids) <= MOST_GPUS
