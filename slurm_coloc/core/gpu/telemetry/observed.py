# SPDX-License-Identifier: Apache-2.0
"""What jobs that colocd did not place use of a node's GPUs: for a site that observes first.

No Prolog of ours has met these jobs, so nothing is promised to them and nothing is done to them.
A job is known from its first process on a GPU on; one that never uses its GPU is not seen.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Any

from slurm_coloc.core.gpu.telemetry.reading import Reading

MOST = 256  # jobs that are remembered; the one that was seen longest ago goes first
GONE_S = 120.0  # without a process: a training may pause between two phases
IN_A_BEAT = 64


@dataclass(slots=True)
class _Gpu:
    """One GPU of a job: MiB, and the sum of its SM activity (ratio) over ``measured`` samples."""

    name: str
    total_mib: int
    peak_mib: int = 0
    smact: float = 0.0
    measured: int = 0


@dataclass(slots=True)
class _Job:
    since_s: float
    until_s: float
    samples: int = 0
    gpus: dict[str, _Gpu] = field(default_factory=dict)


class Observed:
    """Adds up what the samples show of each such job; Unix seconds."""

    def __init__(self) -> None:
        self._jobs: dict[int, _Job] = {}
        self._taken: dict[int, float] = {}  # until when colocd knows each

    def see(self, readings: Iterable[Reading], ours: Container[int], now_s: float) -> None:
        """A sample. ``ours``: jobs that the Prolog has met, which have records of their own."""
        met = set()
        for reading in readings:
            for job_id, mib in reading.jobs.items():
                if job_id not in ours:
                    met.add(job_id)
                    self._add(job_id, reading, mib, now_s)
        for job_id in met:
            self._jobs[job_id].samples += 1
            self._jobs[job_id].until_s = now_s
        self._forget(now_s)

    def _add(self, job_id: int, reading: Reading, mib: int, now_s: float) -> None:
        job = self._jobs.get(job_id)
        if job is None or now_s - job.until_s > GONE_S:  # ids begin anew after slurmctld -c
            job = self._jobs[job_id] = _Job(now_s, now_s)
        gpu = job.gpus.setdefault(reading.uuid, _Gpu(reading.name, reading.total_mib))
        gpu.peak_mib = max(gpu.peak_mib, mib)
        smact = reading.part(reading.profile.smact, job_id)
        if smact is not None:
            gpu.smact += smact
            gpu.measured += 1

    def _forget(self, now_s: float) -> None:
        for job_id, job in list(self._jobs.items()):
            told = self._taken.get(job_id, 0.0) >= job.until_s
            if told and now_s - job.until_s > GONE_S:
                del self._jobs[job_id]
                del self._taken[job_id]
        while len(self._jobs) > MOST:
            oldest = min(self._jobs, key=lambda one: self._jobs[one].until_s)
            del self._jobs[oldest]
            self._taken.pop(oldest, None)

    def due(self) -> list[dict[str, Any]]:
        """What colocd does not know yet, as a heartbeat carries it."""
        found: list[dict[str, Any]] = []
        for job_id, job in list(self._jobs.items()):
            if self._taken.get(job_id, 0.0) < job.until_s and len(found) < IN_A_BEAT:
                found.append(_row(job_id, job))
        return found

    def taken(self, rows: Iterable[dict[str, Any]]) -> None:
        """Colocd has these."""
        for row in rows:
            self._taken[row["job_id"]] = row["until_s"]


def _row(job_id: int, job: _Job) -> dict[str, Any]:
    gpus = [
        {
            "uuid": uuid,
            "name": one.name,
            "total_mib": one.total_mib,
            "peak_mib": one.peak_mib,
            "smact": round(one.smact / one.measured, 4) if one.measured else None,
        }
        for uuid, one in list(job.gpus.items())
    ]
    return {
        "job_id": job_id,
        "since_s": job.since_s,
        "until_s": job.until_s,
        "samples": job.samples,
        "gpus": gpus[:64],
    }
