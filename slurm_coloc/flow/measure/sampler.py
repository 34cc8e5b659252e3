# SPDX-License-Identifier: Apache-2.0
"""Stage measure, the agent's loop: a sample each second, DCGM, jobs' profilers, MPS daemons.

The driver's errors are noted as they come (flow/measure/xids).

NVML is asked in a thread of its own: where the driver hangs, samples stop and all else goes on.
"""

import asyncio
import contextlib
import functools
import os
import time
from collections.abc import Coroutine
from typing import Any

import structlog

from slurm_coloc.adapters import hookenv
from slurm_coloc.adapters.dcgm import Dcgmi
from slurm_coloc.adapters.dcgm.counters import Dcgm
from slurm_coloc.adapters.dcgm.jobs import JobStatistics
from slurm_coloc.adapters.mps import node
from slurm_coloc.adapters.mps.jobs import MpsJob
from slurm_coloc.adapters.nvml import Nvml
from slurm_coloc.adapters.procs.watch import Procs
from slurm_coloc.errors import ColocError, GpuError
from slurm_coloc.flow.measure.act_on_overrun import end_processes, write_to_log
from slurm_coloc.flow.measure.dcgm_stats import JobStats
from slurm_coloc.flow.measure.log_progress import LogProgress
from slurm_coloc.flow.measure.measure import Measurer
from slurm_coloc.flow.measure.overruns import Begun
from slurm_coloc.flow.measure.thread import Worker
from slurm_coloc.flow.node import records
from slurm_coloc.flow.node.jobs_here import Job, add_promise, close_to_others, remove_state

log = structlog.get_logger()

SAMPLE_S = 1.0
LIMIT_S = 5.0  # NVML answers in milliseconds
WITHOUT_S = 60.0  # between two tries on a node without NVML
REAP_S = 60.0
FLUSH_S = 2.0
HEAR_S = 0.1  # between two reads of what the driver reported
FRESH_S = 5.0  # older figures are not sent
URGENT_S = 20.0  # most programs have their first memory on the GPU by then
PROMISE_S = 600.0  # of a run that colocd does not know by then it never will


class Sampler:
    """The samples of this node, for as long as the agent runs."""

    def __init__(self, settings: hookenv.HookSettings, slurm_uid: int) -> None:
        self._settings = settings
        self._lib = Nvml()
        dcgmi = Dcgmi(settings.dcgmi)
        self._dcgm = Dcgm(dcgmi)
        self._root = os.geteuid() == 0
        procs = Procs({0, slurm_uid, os.geteuid()})
        self._measurer = Measurer(settings, self._lib, self._dcgm, procs, may_write=self._root)
        if settings.job_stats and self._root:
            numbers, jobs = lambda: self._dcgm.numbers, self._measurer.jobs
            self._measurer.stats = JobStats(JobStatistics(dcgmi), numbers, jobs)
        self._logs = LogProgress(settings, self._measurer.jobs)
        self._worker = Worker("nvml")
        self._sampled_s = 0.0
        self._reaped_s = 0.0
        self._error = ""
        self._faults: set[str] = set()  # kinds of faults of MPS that were logged
        self._xid = asyncio.Event()
        self._acting: set[asyncio.Task[None]] = set()
        self._mark = settings.run_dir / records.FOLDER / ".profiling-paused"

    def heartbeat(self) -> dict[str, Any]:
        """The fields of a heartbeat on this node's GPUs."""
        progress = self._logs.for_heartbeat()
        if time.monotonic() - self._sampled_s > FRESH_S:
            why = (self._error or "no sample yet")[:160]
            return {"gpus": [], "idle": [], "gpus_why": why, "progress": progress}
        found = self._measurer
        return {
            "gpus": found.figures[:64],
            "idle": found.idle[:64],
            "runs": found.present[:64],
            "without": [
                (job.job_id, job.restart, list(job.uuids)) for job in self._without_promise()
            ],
            "overruns": found.overruns.for_heartbeat()[:64],
            "observed": found.observed.due(),
            "progress": progress,
        }

    @property
    def measurer(self) -> Measurer:
        """What it measures with; another thread changes it."""
        return self._measurer

    @property
    def sampled_s(self) -> float:
        """When the last sample was taken (monotonic); 0 before the first."""
        return self._sampled_s

    @property
    def news(self) -> bool:
        """Whether the next heartbeat should not wait for its time."""
        since_s = time.time() - URGENT_S
        late = (job for job in self._without_promise() if job.began_s > since_s)
        return self._measurer.overruns.news or any(late)

    def delivered(self, figures: dict[str, Any]) -> None:
        """Colocd has taken this heartbeat."""
        self._measurer.observed.taken(figures.get("observed", ()))

    def _without_promise(self) -> list[Job]:
        """Runs whose Prolog is over and got no answer of colocd."""
        since_s = time.time() - PROMISE_S
        return [
            job
            for job in self._measurer.jobs()
            if job.promised_mib is None and job.prolog_s is not None and job.began_s > since_s
        ][:32]

    def promised(self, promises: object) -> None:
        """Note what runs were promised whose Prolog could not ask: from now on they are judged by
        it, and their MPS server holds the clients to come."""
        if not self._root or not isinstance(promises, list):
            return
        for one in promises[:32]:
            with contextlib.suppress(ColocError, OSError):
                job = add_promise(self._settings.run_dir, one) if isinstance(one, dict) else None
                if job is not None:
                    self._beside(self._hold(job))

    async def _hold(self, job: Job) -> None:
        settings, run = self._settings, MpsJob(job.job_id, job.restart, job.uid, 0)
        hold = (settings.run_dir, settings.mps_control, os.environ, run, job.promised_mib or 0)
        faults = await asyncio.to_thread(node.promised, *hold)
        log.info("promise", jobid=job.job_id, result="; ".join(faults) or "known now")

    def forget(self, gone: object) -> None:
        """Remove the states of jobs that colocd knows to have ended long ago: their Epilog was
        killed, or never ran. Their MPS daemon goes within a second."""
        if not self._root or not isinstance(gone, list):
            return
        here = {one[0] for one in self._measurer.present}
        for job_id in gone[:64]:
            if isinstance(job_id, int) and job_id in here:
                log.warning("state", jobid=job_id, result="removed: its Epilog never came")
                with contextlib.suppress(ColocError, OSError):
                    remove_state(self._settings.run_dir, job_id)
                self._reaped_s = 0.0

    async def run(self) -> None:
        """Until cancelled."""
        if not self._root:
            log.warning(
                "agent",
                user=os.geteuid(),
                reason="not root: no records of what jobs use, no environment of other users'"
                " processes, no tidying of MPS; figures and link go on",
            )
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._dcgm.run())
                if self._measurer.stats is not None:
                    group.create_task(self._measurer.stats.run())
                if self._settings.log_read_s and self._root:
                    group.create_task(self._logs.run())
                group.create_task(self._each_second())
        finally:
            # Stopped in an orderly way; after a kill up to five seconds of figures are missing.
            with contextlib.suppress(TimeoutError, Exception):
                await self._worker.call(self._measurer.flush, FLUSH_S)

    async def _each_second(self) -> None:
        if self._root:
            with contextlib.suppress(ColocError, OSError):  # no Prolog has been here
                close_to_others(self._settings.run_dir)
        if self._root and self._mark.exists():
            await self._resume()  # an agent that was killed has left the counters paused
        self._measurer.xids.start(functools.partial(_set, asyncio.get_running_loop(), self._xid))
        next_s = time.monotonic()
        while True:
            next_s = max(next_s + SAMPLE_S, time.monotonic())
            pause_s = 0.0
            try:
                await self._profilers(await self._worker.call(self._measurer.tick, LIMIT_S))
                self._sampled_s = time.monotonic()
                self._log_state("")
                self._on_overruns()
            except TimeoutError as err:
                self._log_state(f"the driver does not answer: {err}")
            except GpuError as err:
                self._log_state(err.message)
                pause_s = WITHOUT_S
                with contextlib.suppress(TimeoutError, ColocError):
                    await self._worker.call(self._lib.close, LIMIT_S)
            except Exception:
                log.exception("sample")
                pause_s = SAMPLE_S
            await self._reap()
            await self._listen(max(time.monotonic() + pause_s, next_s))

    def _on_overruns(self) -> None:
        """Tell the jobs that hold too much, and end what holds it where the site wants that."""
        for one in self._measurer.overruns.begun() if self._root else ():
            self._beside(self._act(one))

    def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        """Samples go on meanwhile."""
        task = asyncio.create_task(work)
        self._acting.add(task)
        task.add_done_callback(self._acting.discard)

    async def _act(self, one: Begun) -> None:
        settings, job_id = self._settings, one.job.job_id
        ends = settings.overrun == "end"
        why = await asyncio.to_thread(write_to_log, settings, one, ends=ends)
        log.info("overrun", jobid=job_id, told=not why, **({"reason": why} if why else {}))
        if ends:
            left = await asyncio.to_thread(end_processes, settings, one, os.environ)
            log.warning("overrun", jobid=job_id, result=left or "its processes were ended")
            if left:
                with contextlib.suppress(TimeoutError):
                    note = functools.partial(self._measurer.note_left, one, left)
                    await self._worker.call(note, LIMIT_S)

    async def _listen(self, until_s: float) -> None:
        """Sleep; what the driver reports meanwhile is noted at once."""
        while (left_s := until_s - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(left_s):
                    await self._xid.wait()
            except TimeoutError:
                return
            self._xid.clear()
            with contextlib.suppress(TimeoutError):
                await self._worker.call(self._measurer.hear, LIMIT_S)
            await asyncio.sleep(HEAR_S)  # a GPU that fails may report hundreds a second

    def _log_state(self, why: str) -> None:
        if why.partition(":")[0] != self._error.partition(":")[0]:
            if why:
                log.warning("sample", error=why)
            else:
                log.info("sample", result="samples again")
        self._error = why

    async def _profilers(self, job_id: int | None) -> None:
        """Free the profiling counters while a job's own profiler runs."""
        if job_id == self._measurer.readings.paused_by:
            return
        before, self._measurer.readings.paused_by = self._measurer.readings.paused_by, job_id
        if job_id is None:
            await self._resume()
        elif before is None:
            log.info("profiling", jobid=job_id, result="counters paused")
            if self._root and self._mark.parent.is_dir():
                self._mark.touch()
            await self._dcgm.pause()

    async def _resume(self) -> None:
        log.info("profiling", result="counters resumed")
        await self._dcgm.resume()
        if self._root:
            self._mark.unlink(missing_ok=True)

    async def _reap(self) -> None:
        """Stop MPS daemons whose last job ended without its Epilog. The hooks' own lock keeps
        it apart from a Prolog."""
        if not self._root or time.monotonic() - self._reaped_s < REAP_S:
            return
        self._reaped_s = time.monotonic()
        settings = self._settings
        try:
            found = await asyncio.to_thread(
                node.reap, settings.run_dir, settings.mps_control, os.environ
            )
        except Exception as err:  # samples go on, whatever it is
            found = node.Reaped([], [f"{type(err).__name__}: {err}"])
        for gpu in found.ended:
            log.info("mps", gpu=gpu, result="an MPS daemon without jobs was ended")
        for fault in found.faults:
            kind = fault.partition(":")[0]
            if kind not in self._faults:  # each minute the same
                self._faults.add(kind)
                log.warning("mps", error=fault[:200], note="logged once")


def _set(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    """From another thread."""
    with contextlib.suppress(RuntimeError):  # the agent has ended
        loop.call_soon_threadsafe(event.set)
