# SPDX-License-Identifier: Apache-2.0
"""Stage measure, in `coloc agent`: each second a sample of every GPU, added up per run.

One thread uses this object: when NVML hangs with its driver, only that thread hangs.
"""

import time
from pathlib import Path
from typing import Any

import structlog

from slurm_coloc.adapters.dcgm.counters import Dcgm
from slurm_coloc.adapters.dcgm.jobs import name_of
from slurm_coloc.adapters.hookenv import HookSettings
from slurm_coloc.adapters.nvml import Nvml
from slurm_coloc.adapters.procs.watch import Procs
from slurm_coloc.core.gpu.telemetry.idle import Idle
from slurm_coloc.core.gpu.telemetry.observed import Observed
from slurm_coloc.core.gpu.telemetry.reading import Reading
from slurm_coloc.core.gpu.telemetry.use import RunUse, resume
from slurm_coloc.errors import ColocError
from slurm_coloc.flow.measure import xids
from slurm_coloc.flow.measure.dcgm_exporter import map_jobs
from slurm_coloc.flow.measure.dcgm_stats import JobStats
from slurm_coloc.flow.measure.driver_accounting import Accounting
from slurm_coloc.flow.measure.overruns import Begun, Overruns
from slurm_coloc.flow.measure.prolog_times import PrologTimes
from slurm_coloc.flow.measure.readings import Readings, sources
from slurm_coloc.flow.measure.rolling_mean import RollingMean
from slurm_coloc.flow.node import records
from slurm_coloc.flow.node.jobs_here import Job, Present

log = structlog.get_logger()

WRITE_S = 5.0
ACCOUNT_S = 5.0
FORGET_S = 60.0
HUNG_S = 5.0  # no sample for so long: the driver did not answer


class Run:
    """A run that is on this node now, and what was last written of it."""

    def __init__(self, job: Job, use: RunUse, idle_after_s: float) -> None:
        self.job = job
        self.use = use
        self.idle = Idle(idle_after_s)
        self.held_mib = 0
        self.written_s = 0.0
        self._written: tuple[float, ...] = ()

    def is_due(self, now_s: float) -> bool:
        """Whether the record is to be written now: each five seconds, and at once where a process
        came or went, a peak grew or something was noted."""
        marks = self._marks()
        if marks == self._written and now_s - self.written_s < WRITE_S:
            return False
        self._written, self.written_s = marks, now_s
        return True

    def _marks(self) -> tuple[float, ...]:
        ended = sum(one.end_s is not None for one in self.use.pids)
        peaks = sum(one.peak_mib for one in self.use.pids)
        noted = sum(float(one["at_s"]) for one in self.use.events)
        return len(list(self.use.pids)), ended, peaks, noted


class Measurer:
    """The samples of one node. ``may_write``: whether records can be written (root)."""

    def __init__(
        self, settings: HookSettings, lib: Nvml, dcgm: Dcgm, procs: Procs, *, may_write: bool
    ) -> None:
        self._settings = settings
        self._dcgm = dcgm
        self._procs = procs
        self.readings = Readings(lib, dcgm, procs)
        self._may_write = may_write
        self._present = Present(settings.run_dir)
        self._accounting = Accounting(lib, lambda: records.every(settings.run_dir))
        self._runs: dict[int, Run] = {}
        self.overruns = Overruns(settings.context_mib, ends=settings.overrun == "end")
        self.observed = Observed()
        self.rolling = RollingMean(settings.window_s)
        self._at_s = self._accounted_s = self._forgot_s = 0.0
        self._mapped: dict[str, tuple[int, ...]] = {}
        self._logged = ""
        self.xids = xids.Xids()
        self.stats: JobStats | None = None
        self.idle: list[dict[str, Any]] = []
        self.present: list[tuple[int, int, float]] = []
        self.prologs = PrologTimes()
        if may_write:
            for record in records.every(settings.run_dir):
                self._accounting.know(record)

    @property
    def figures(self) -> list[dict[str, Any]]:
        """How each GPU is now, for a heartbeat."""
        return self.rolling.figures

    def jobs(self) -> list[Job]:
        """The runs that are here now."""
        return list(self._present.jobs.values())

    @property
    def run_dir(self) -> Path:
        """Of the hooks."""
        return self._settings.run_dir

    def tick(self) -> int | None:
        """Take one sample; the job whose own profiler runs now. Raises GpuError without NVML."""
        now_s, mono_s = time.time(), time.monotonic()
        if self._present.refresh() or not self._at_s:
            self._match(now_s)
        readings = self.readings.take(self._present.uids, self._accounting.see)
        energy_j = self.readings.spent(readings)
        for run in self._runs.values():
            self._add(run, readings, energy_j, now_s)
        # A --coloc job of observe mode has met the Prolog too, and was promised nothing.
        ours = {one.job_id for one in self.jobs() if one.promised_mib is not None}
        self.observed.see(readings, ours, now_s)
        self._account(readings, now_s)
        self._note_xids()
        self._publish(readings, mono_s)
        self._write(now_s)
        self._at_s = now_s
        self._procs.end_round()
        return self._procs.profiled(self._present.uids, mono_s)

    def note_left(self, one: Begun, why: str) -> None:
        """Note that the processes of an overrun could not be ended."""
        now_s = time.time()
        self.overruns.note(one.use, "left", why, one.uuid, one.change, now_s)
        self._write(now_s)

    def hear(self) -> None:
        """Note and write what the driver has reported; a job may have come since a sample."""
        if self._present.refresh():
            self._match(time.time())
        if self._note_xids():
            self._write(time.time())

    def _note_xids(self) -> bool:
        found = self.xids.take()
        runs = [(run.job, run.use) for run in self._runs.values()]
        for at_s, one in found:
            jobs = xids.note(at_s, one, runs, self._present.jobs)
            log.warning("xid", number=one.number, gpu=one.uuid, jobs=jobs)
        return bool(found)

    # runs

    def _match(self, now_s: float) -> None:
        """Follow the jobs that are here: begin new runs, or go on with their records."""
        for job_id, run in list(self._runs.items()):
            job = self._present.jobs.get(job_id)
            if job is not None and (job.restart, job.began_s) == (run.job.restart, run.job.began_s):
                run.job = job  # the Prolog has learned its GPUs meanwhile
                continue
            del self._runs[job_id]
            if self._may_write and job is not None:
                self._put(run)  # it was requeued to this node before its Epilog's work was noticed
        for job_id, job in self._present.jobs.items():
            if job_id not in self._runs:
                self._runs[job_id] = Run(job, self._begin(job), self._settings.idle_after_s)
        self.overruns.keep({(one.job_id, one.restart) for one in self.jobs()}, now_s)
        self.prologs.see(self.jobs(), before=not self._at_s)

    def _begin(self, job: Job) -> RunUse:
        plain = records.load(self.run_dir, job.job_id, job.restart, job.began_s)
        if plain is not None:
            try:
                return resume(plain)
            except (KeyError, TypeError, ValueError) as err:
                log.warning("record", jobid=job.job_id, error=f"begun anew: {err!r}"[:200])
        return RunUse(job.job_id, job.restart, job.began_s)

    def _add(
        self, run: Run, readings: list[Reading], energy_j: dict[str, float], now_s: float
    ) -> None:
        use, job = run.use, run.job
        mine = [one for one in readings if one.uuid in job.uuids or job.job_id in one.jobs]
        self._notice(run, mine, now_s)
        if not mine:
            return  # its GPUs do not answer, or nobody knows them yet: no sample is no zero
        others = {one.job_id: (one.restart, one.uid) for one in self._present.jobs.values()}
        smact = use.add(now_s, mine, energy_j, others)
        self.overruns.see(job, use, mine, now_s)
        found, use.why = sources(mine)
        use.why |= {"xid": self.xids.why} if self.xids.why else {}
        use.sources = {name: one or use.sources.get(name) for name, one in found.items()}
        self._add_statistics(use)
        run.held_mib = sum(one.mib_of(job.job_id) for one in mine)
        if use.pids.close(now_s):
            self._accounted_s = 0.0  # ask for its last figures at once
        if not set(job.uuids) <= {one.uuid for one in mine}:
            smact = None  # it may work on the GPU that does not answer
        certain = all(one.is_certain(job.job_id) for one in mine)
        if run.idle.see(now_s, smact, certain=certain):
            minutes = self._settings.idle_after_s / 60
            text = f"{run.held_mib} MiB held, no SM activity for {minutes:g} min"
            use.note(now_s, "idle", text)
            log.info("idle", jobid=job.job_id, restart=job.restart, held_mib=run.held_mib)

    def _add_statistics(self, use: RunUse) -> None:
        """DCGM's own of the run, or why there are none, where they are wanted."""
        if self.stats is None:
            return
        name = name_of(use.job_id, use.restart)
        use.dcgm = self.stats.figures.get(name, use.dcgm)
        if why := self.stats.why.get(name):
            use.why["job_stats"] = why

    def _notice(self, run: Run, mine: list[Reading], now_s: float) -> None:
        use = run.use
        noted = {(one["kind"], one["text"]) for one in use.events}

        def once(kind: str, text: str) -> None:
            if (kind, text) not in noted:
                use.note(now_s, kind, text)

        if self._at_s and now_s - self._at_s > HUNG_S and use.samples:
            use.note(now_s, "driver", f"no sample for {now_s - self._at_s:.0f} s")
        for uuid in run.job.uuids:
            if uuid in self.readings.lost:
                once("gpu-lost", f"{uuid}: {self.readings.lost[uuid]}")
        if not any(one["kind"] == "foreign" for one in use.events):
            for reading in mine:
                strange = [one for one in reading.held if one.job_id is None and one.mib]
                for one in strange[:3]:
                    text = f"pid {one.pid} of no job holds {one.mib} MiB on {reading.uuid}"
                    once("foreign", text)

    def _account(self, readings: list[Reading], now_s: float) -> None:
        due = bool(self._runs) and now_s - self._accounted_s >= ACCOUNT_S
        if due:
            self._accounted_s = now_s
        runs = [run.use for run in self._runs.values()]
        gpus = {job.job_id: job.uuids for job in self._present.jobs.values()}
        unknown = [use for use in runs if not gpus.get(use.job_id)]
        for reading in readings:
            there = [use for use in runs if reading.uuid in gpus.get(use.job_id, ())]
            there += [u for u in runs if u.job_id in reading.jobs and u not in there]
            self._accounting.meet(reading.uuid, there, unknown, now_s)
            if due:
                ours = {use.job_id for use in there}
                others = any(one.job_id not in ours for one in reading.held)
                others = others or any(use not in there for use in unknown)
                self._accounting.poll(reading.uuid, there, others=others)

    # what leaves this node

    def _publish(self, readings: list[Reading], mono_s: float) -> None:
        jobs = self._present.jobs
        self.rolling.take(readings, jobs.values(), mono_s)
        if self._settings.job_mapping_dir is not None:
            # The exporter counts GPUs as DCGM does.
            mapping = self.rolling.mapping(self._dcgm.numbers)
            if mapping != self._mapped:
                self._mapped = mapping
                map_jobs(self._settings.job_mapping_dir, mapping)
        self.present = [(j.job_id, j.restart, j.began_s) for j in jobs.values()]
        self.idle = [
            {
                "job_id": run.job.job_id,
                "restart": run.job.restart,
                "since_s": round(run.idle.since_s, 1),
                "certain_s": run.idle.certain_s and round(run.idle.certain_s, 1),
                "held_mib": run.held_mib,
            }
            for run in self._runs.values()
            if run.idle.since_s is not None
        ]

    def _write(self, now_s: float) -> None:
        if not self._may_write:
            return
        for run in self._runs.values():
            if run.is_due(now_s):
                self._put(run)
        if now_s - self._forgot_s > FORGET_S:
            self._forgot_s = now_s
            records.forget(self.run_dir, self._present.jobs.keys())

    def flush(self) -> None:
        """Write every record: the agent ends."""
        for run in self._runs.values() if self._may_write else ():
            if run.use.samples:
                self._put(run)

    def _put(self, run: Run) -> None:
        try:
            records.write(self.run_dir, run.use.record())
            self._logged = ""
        except (ColocError, OSError) as err:
            if str(err) != self._logged:
                self._logged = str(err)
                log.error("record", jobid=run.job.job_id, error=str(err)[:200])
