# SPDX-License-Identifier: Apache-2.0
"""A GPU's activity divided among the jobs on it.

No counter of NVIDIA tells the SM activity of one process. Alone on a GPU a job's activity is the
GPU's; beside others it is taken in proportion to the time in which each had a kernel running
(NVML's per-process utilization), else by equal parts, and is called split.
"""

from collections.abc import Mapping
from typing import Literal

from slurm_coloc.core.gpu.telemetry.reading import Reading

How = Literal["alone", "split", "mig"]


def weights(reading: Reading) -> dict[int, float]:
    """Each job's part of the activity on this GPU; the parts of all jobs and of the processes of no
    job add up to 1."""
    busy: dict[int | None, float] = {}
    told = False
    for one in reading.held:
        busy[one.job_id] = busy.get(one.job_id, 0.0) + (one.busy or 0.0)
        told = told or one.busy is not None
    if not busy:
        return {}
    total = sum(busy.values())
    if not told or total <= 0:
        busy, total = dict.fromkeys(busy, 1.0), float(len(busy))
    return {job: part / total for job, part in busy.items() if job is not None}


def how(reading: Reading, job_id: int) -> How:
    """How the activity of a job here is known."""
    if reading.owners - {job_id}:
        return "split"
    return "mig" if reading.mig else "alone"


def part(value: float | None, job_id: int, weight: Mapping[int, float]) -> float | None:
    """A job's part of a figure of the whole GPU."""
    return None if value is None else value * weight.get(job_id, 0.0)
