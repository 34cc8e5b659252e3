# SPDX-License-Identifier: Apache-2.0
"""Stage measure, the time that trainings still take: each job's log is read from time to time.

Off by default. A child with the job's uid reads a bounded part of the log and hands numbers back
(adapters/joblog/numbers); what they mean is found here (core/time/progress). A log that gives no
answer in time is left alone for a while: a dead file server must not cost a thread each time. What
a user's log claims moves the expected end of his own job and nothing else.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import structlog

from slurm_coloc.adapters import procs, userfile
from slurm_coloc.adapters.confine import address_space, confine, no_new_privileges
from slurm_coloc.adapters.hookenv import HookSettings
from slurm_coloc.adapters.joblog.borrow import NO_ANSWER
from slurm_coloc.adapters.joblog.numbers import read_numbers
from slurm_coloc.core.time.progress.forecast import Progress
from slurm_coloc.core.time.progress.reading import Said
from slurm_coloc.errors import ColocError
from slurm_coloc.flow.node.jobs_here import Job, starts_of

log = structlog.get_logger()

READ_S = 1.0  # for one log
CPU_S = 1.0
MEMORY = 64 * 2**20  # more than the child has at its begin
FIRST_S, SKIP_S = 60.0, 600.0  # without a try, after one that took too long, and after many
MOST = 64  # runs in a heartbeat


class _Watched:
    """A run's log."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.progress = Progress()
        self.not_before_s = 0.0
        self.late = 0  # tries without an answer, one after the other
        self.why = ""


class LogProgress:
    """Of all jobs on this node that Prolog and Epilog know."""

    def __init__(self, settings: HookSettings, jobs: Callable[[], list[Job]]) -> None:
        self._settings = settings
        self._jobs = jobs
        self._watched: dict[tuple[int, int], _Watched] = {}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            begin_s = time.monotonic()
            for one in self._present():
                if time.monotonic() >= one.not_before_s:
                    await self._update(one)
            used_s = time.monotonic() - begin_s
            await asyncio.sleep(max(1.0, self._settings.log_read_s - used_s))

    def for_heartbeat(self) -> list[dict[str, Any]]:
        """How far the runs are, of those whose log says it."""
        now_s = time.time()
        found = []
        for (job_id, restart), one in list(self._watched.items()):
            told = one.progress.forecast(now_s)
            if told is not None:
                rounded = {
                    name: None if value is None else round(value, 6)
                    for name, value in told._asdict().items()
                }
                found.append({"job_id": job_id, "restart": restart, "at_s": now_s, **rounded})
        return found[:MOST]

    def _present(self) -> list[_Watched]:
        here = {(job.job_id, job.restart): job for job in self._jobs()}
        self._watched = {key: self._watched.get(key) or _Watched(job) for key, job in here.items()}
        return list(self._watched.values())

    async def _update(self, one: _Watched) -> None:
        try:
            said = await asyncio.to_thread(self._read, one.job)
        except (ColocError, OSError) as err:
            said = str(getattr(err, "message", "") or getattr(err, "strerror", "") or err)
        if isinstance(said, Said):
            one.progress.see(time.time(), said)
            one.why, one.late = "", 0
            return
        if said == NO_ANSWER:
            one.not_before_s = time.monotonic() + min(SKIP_S, FIRST_S * 2.0**one.late)
            one.late += 1
        if said != one.why:  # the same reason is logged once
            one.why = said
            log.info("time left", jobid=one.job.job_id, reason=said[:120])

    def _read(self, job: Job) -> Said | str:
        starts = starts_of(self._settings.run_dir, job.job_id)
        if not starts:
            return "it has no log of its own"
        pids = procs.of_job(job.job_id, job.uid)

        def confine_child() -> None:
            userfile.becomes(job.uid)()
            no_new_privileges()
            confine(CPU_S, address_space() + MEMORY)

        return read_numbers(confine_child, pids, starts, READ_S)
