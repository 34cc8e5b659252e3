# SPDX-License-Identifier: Apache-2.0
"""SenseTime's public Helios trace: `cluster_log.csv` of one cluster.

Columns job_id, user, vc, gpu_num, cpu_num, node_num, state, submit_time, start_time, end_time,
duration (s), queue (s), as HeliosData's own description has them (Hu et al., SC 2021). It tells
neither GPU memory nor SM activity nor time limits.
"""

from datetime import datetime
from pathlib import Path

from slurm_coloc.sim.past import Past, PastJob, counted
from slurm_coloc.sim.readers.cells import Cells, Table

NEEDED = ("job_id", "gpu_num", "submit_time", "start_time", "duration")


def read_helios(path: Path) -> Past:
    """The GPU jobs of a cluster that started. Raises UsageFault naming file, line and column."""
    table = Table(path, ",", quoted=True)
    jobs: list[PastJob] = []
    no_gpu = not_run = 0
    first = True
    for row in table.rows():
        if first:
            table.require(NEEDED)
            first = False
        gpus = row.whole("gpu_num", 0, 100_000)
        if gpus == 0:
            no_gpu += 1
        elif row.text("start_time") in ("", "None", "Unknown") or not row.text("duration"):
            not_run += 1
        else:
            jobs.append(_job(row, gpus))
    table.require(NEEDED)
    notes = []
    if no_gpu:
        notes.append(f"{counted(no_gpu, 'job')} without a GPU left out")
    if not_run:
        notes.append(f"{counted(not_run, 'job')} that never started left out")
    return Past(jobs, notes)


def _job(row: Cells, gpus: int) -> PastJob:
    return PastJob(
        id=row.text("job_id"),
        submit_s=_time(row, "submit_time"),
        start_s=_time(row, "start_time"),
        run_s=row.number("duration", 0.0),
        gpus=gpus,
        user=row.text("user"),
        account=row.text("vc"),
        cpus=row.whole("cpu_num", 0) if row.text("cpu_num") else 0,
    )


def _time(row: Cells, column: str) -> float:
    """Seconds of ``2020-06-09 18:41:01``; a clock without summer time is assumed."""
    try:
        return (datetime.fromisoformat(row.text(column)) - datetime(1970, 1, 1)).total_seconds()
    except (ValueError, TypeError):
        raise row.fault(column, "is not a time such as 2020-06-09 18:41:01") from None
