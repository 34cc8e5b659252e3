# SPDX-License-Identifier: Apache-2.0
"""Takes an Epilog's report and follows the job until it is over."""

import asyncio
import contextlib
from collections.abc import Coroutine

from slurm_coloc.daemon.parts import Parts
from slurm_coloc.flow.nodes import epilog

# An Epilog waits 2 s for the answer to its report.
ANSWER_S = 1.5


class Ends:
    """``recovering`` is set when there may be a job to recover."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.recovering = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def take(self, report: epilog.RunReport) -> None:
        """Take an Epilog's report. After an out-of-memory the answer waits for the requeue: while
        the Epilog runs the job is COMPLETING, and jobs that depend on it do not see one fail that
        is put back in that state."""
        epilog.keep(self._parts.store, report)
        self._parts.recorder.late(report.job_id)
        polled = self.poll(report.job_id)
        goes_on = report.checkpoint is not None and report.checkpoint.goes_on
        if goes_on or (report.evidence is not None and report.evidence.oom):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ANSWER_S):
                    await polled.wait()

    def poll(self, job_id: int) -> asyncio.Event:
        """Check a job until it has left COMPLETING. The event is set when its recovery has begun,
        or there is none."""
        begun, parts = asyncio.Event(), self._parts

        async def follow() -> None:
            try:
                await parts.watcher.poll_once(job_id)
                await parts.recoverer.at_once(job_id)
                await parts.slots.at_once(job_id)
            finally:
                begun.set()
            await parts.watcher.after_report(job_id)
            await parts.slots.at_once(job_id)
            self.recovering.set()

        self.background(follow())
        return begun

    def background(self, what: Coroutine[None, None, None]) -> None:
        """Run in the background, to its end."""
        task = asyncio.create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
