# SPDX-License-Identifier: Apache-2.0
"""Stage finish, what the run used: the agent's record, brought up to the end.

The agent writes at least every five seconds and where something changed, so the record may be a
second old. The driver's accounting is asked once more here, and nothing is lost in between; of a
run that ended before the agent's first sample it is all there is. Without an agent there is no
record, and the report is as it was without one.
"""

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slurm_coloc.adapters import procs
from slurm_coloc.core.gpu.peak import Use
from slurm_coloc.core.gpu.telemetry import final_usage
from slurm_coloc.core.gpu.telemetry.on_gpu import OnGpu
from slurm_coloc.core.gpu.telemetry.use import GAP_S, RunUse
from slurm_coloc.errors import ColocError
from slurm_coloc.flow.node import records
from slurm_coloc.flow.node.jobs_here import Job, Present

MOST_BYTES = 28672  # a report as a whole stays below 32 KiB
# A record that is not written again is so much older than its run's end at most: those in between.
BEHIND_S = 6.0

Plain = dict[str, Any]


def used(
    run_dir: Path,
    state: Mapping[str, Any],
    accounted: Mapping[str, list[Use]] | None,
    ended_s: float,
    notes: list[str],
) -> Plain | None:
    """The record of the run with this state; None without one. A fault is a note."""
    try:
        job = (int(state["job_id"]), int(state["restart"]), float(state["started_s"]))
    except (KeyError, TypeError, ValueError):
        return None
    seen = records.load(run_dir, *job)
    unseen = None if seen else _unseen(run_dir, state, job)
    record = seen or (unseen.record() if unseen else None)
    if record is None:
        return None
    others = Others(run_dir, job[0])
    try:
        found = final_usage.closed(record, accounted, others.job_of, ended_s)
    except (KeyError, TypeError, ValueError) as err:
        notes.append(f"record of use: {err!r}"[:200])
        return None
    finally:
        if unseen:
            unseen.gap_s = max(unseen.gap_s, ended_s - unseen.began_s)
        if unseen or ended_s - float(record["until_s"]) > BEHIND_S:
            _leave_trace(run_dir, unseen.record() if unseen else record, ended_s)
    return small(found)


def _unseen(run_dir: Path, state: Mapping[str, Any], job: tuple[int, int, float]) -> RunUse | None:
    """A run that the agent has no sample of: it ended within a second or two. None without an
    agent, when nobody would remove its record."""
    if not (run_dir / records.FOLDER).is_dir():
        return None
    run = RunUse(*job)
    run.until_s, run.gap_s = run.began_s, GAP_S + 1.0
    found = state.get("gpu") or {}
    uuids = [one.get("uuid") for one in found.get("devices", ()) if isinstance(one, dict)]
    run.gpus = {uuid: OnGpu() for uuid in uuids if isinstance(uuid, str)}
    return run


def _leave_trace(run_dir: Path, record: Plain, ended_s: float) -> None:
    """Tell the agent, and the Epilogs of its neighbours, how long a run was here that the agent did
    not see, or not to its end."""
    with contextlib.suppress(ColocError, OSError):
        records.write(run_dir, record | {"until_s": ended_s})


class Others:
    """Finds the job of a process that began after the agent's last sample."""

    def __init__(self, run_dir: Path, job_id: int) -> None:
        self._job_id = job_id
        self._records = [one for one in records.every(run_dir) if one["job_id"] != job_id]
        self._present = Present(run_dir)
        self._present.refresh()

    def job_of(self, uuid: str, use: Use) -> int | None:
        """By /proc while it runs; by the other jobs' records; this job's where it has the GPU to
        itself. 0: another's."""
        found = procs.find(use.pid, self._present.uids.get) if use.end_s is None else None
        if found is not None:
            return found.job_id or 0
        for record in self._records:
            if any(one.get("pid") == use.pid and one.get("uuid") == uuid for one in record["pids"]):
                return 0
        return self._job_id if self._alone(uuid, use) else None

    def _alone(self, uuid: str, use: Use) -> bool:
        """Whether no other run is on this GPU, and none left it since the process began."""
        for record in self._records:
            # A run that ended before its GPU was learned may have been on any.
            there = not record["gpus"] or any(gpu.get("uuid") == uuid for gpu in record["gpus"])
            if there and float(record["until_s"]) + BEHIND_S >= use.start_s:
                return False
        others: list[Job] = [
            job for job in self._present.jobs.values() if job.job_id != self._job_id
        ]
        return not any(uuid in job.uuids or not job.uuids for job in others)


def small(record: Plain) -> Plain:
    """The record in at most MOST_BYTES: the series goes first, then the smallest processes."""
    if _fits(record):
        return record
    left_out = {**record.get("left_out", {}), "series": 1}
    record = {**record, "series": None, "left_out": left_out}
    if _fits(record):
        return record
    largest = sorted(record["pids"], key=lambda one: -int(one["peak_mib"]))[:16]
    gone = int(left_out.get("pids", 0)) + len(record["pids"]) - len(largest)
    return {**record, "pids": largest, "left_out": {**left_out, "pids": gone}}


def _fits(record: Plain) -> bool:
    return len(json.dumps(record)) <= MOST_BYTES
