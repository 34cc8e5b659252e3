# SPDX-License-Identifier: Apache-2.0
"""Stage measure, the driver's errors: Xids as they come, into the records of the runs they concern.

A thread waits in the driver, which costs nothing, and is woken at once. Polling once a second would
come too late: a run that dies of an Xid has its Epilog, which reads the record, within some tenths
of a second.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping

import structlog

from slurm_coloc.adapters.nvml import Nvml
from slurm_coloc.adapters.nvml.events import Events, Xid
from slurm_coloc.core.gpu.sharing import Method
from slurm_coloc.core.gpu.telemetry.use import RunUse
from slurm_coloc.core.recover import xid
from slurm_coloc.errors import GpuError
from slurm_coloc.flow.node.jobs_here import Job

log = structlog.get_logger()

WAIT_S = 30.0  # in the driver
AGAIN_S = 60.0  # after a fault, and where no GPU reports Xids
ASK_AGAIN_S = 600.0  # GPUs that could not be registered are asked again
MOST_WAITING = 256  # a GPU that fails may report hundreds a second

Timed = tuple[float, Xid]


class Xids:
    """The thread that waits. ``why``: why no GPU of this node reports Xids; "" where one does."""

    def __init__(self) -> None:
        self._queue: queue.Queue[Timed] = queue.Queue(MOST_WAITING)
        self._wake: Callable[[], None] = lambda: None
        self.why = "not asked yet"

    def start(self, wake: Callable[[], None]) -> None:
        """``wake``: called from the thread when something came."""
        self._wake = wake
        threading.Thread(target=self._run, name="xid", daemon=True).start()

    def take(self) -> list[Timed]:
        """What came since the last call, with the time (epoch)."""
        found = []
        while not self._queue.empty():
            found.append(self._queue.get_nowait())
        return found

    def _run(self) -> None:
        while True:
            events = Events(Nvml())
            pause_s = AGAIN_S
            try:
                pause_s = self._follow(events)
            except GpuError as err:
                self._log_state(err.message)
            except Exception:
                log.exception("xid")
            events.close()
            time.sleep(pause_s)

    def _follow(self, events: Events) -> float:
        """Wait for Xids; returns the pause to make before the GPUs are asked again whether they
        report any. Raises GpuError."""
        if not events.open():
            self._log_state("; ".join(sorted(set(events.why.values()))) or "there is no GPU")
            return AGAIN_S
        self._log_state("")
        until_s = time.monotonic() + ASK_AGAIN_S
        while not events.why or time.monotonic() < until_s:
            found = events.wait(WAIT_S)
            if found is None:
                continue
            try:
                self._queue.put_nowait((time.time(), found))
            except queue.Full:
                continue  # the first ones say what it was
            self._wake()
        return 0.0

    def _log_state(self, why: str) -> None:
        if why != self.why:
            log.info("xid", result="not reported" if why else "waiting for them", reason=why)
        self.why = why


def note(
    at_s: float, found: Xid, runs: Iterable[tuple[Job, RunUse]], present: Mapping[int, Job]
) -> list[int]:
    """Write an Xid into the records of the runs on its GPU; the jobs that it concerns."""
    jobs = []
    for job, use in runs:
        mine = found.uuids & (set(job.uuids) | use.gpus.keys())
        if not mine:
            continue
        others = (one for one in present.values() if one.job_id != job.job_id)
        beside = any(_client(one) and mine.intersection(one.uuids) for one in others)
        kind, text = xid.event(found.number, found.uuid, shared=_client(job) and beside)
        use.note_again(at_s, kind, text)
        jobs.append(job.job_id)
    return jobs


def _client(job: Job) -> bool:
    return job.method == Method.MPS
