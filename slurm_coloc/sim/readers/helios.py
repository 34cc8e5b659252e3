# SPDX-License-Identifier: Apache-2.0
"""SenseTime's public Helios trace: `cluster_log.csv` of one cluster.

Columns job_id, user, vc, gpu_num, cpu_num, node_num, state, submit_time, start_time, end_time,
duration (s), queue (s), as HeliosData's own description has them (Hu et al., SC 2021). It tells
neither GPU memory nor SM activity nor time limits.
"""

from pathlib import Path

from slurm_coloc.sim.past import Past, PastJob, notes
from slurm_coloc.sim.readers.cells import Cells, Table

NEEDED = ("job_id", "gpu_num", "submit_time", "start_time", "duration")
#: a clock without summer time is assumed
TIME = "2020-06-09 18:41:01"


def read_helios(path: Path) -> Past:
    """The GPU jobs of a cluster that started. Raises UsageFault naming file, line and column."""
    jobs: list[PastJob] = []
    no_gpu = not_run = 0
    for row in Table(path, NEEDED).rows():
        gpus = row.whole("gpu_num", 0, 100_000)
        if gpus == 0:
            no_gpu += 1
        elif row.text("start_time") in ("", "None", "Unknown") or not row.text("duration"):
            not_run += 1
        else:
            jobs.append(_job(row, gpus))
    return Past(
        jobs,
        notes(
            (no_gpu, "job", "without a GPU left out"),
            (not_run, "job", "that never started left out"),
        ),
    )


def _job(row: Cells, gpus: int) -> PastJob:
    return PastJob(
        id=row.text("job_id"),
        submit_s=row.moment("submit_time", TIME),
        start_s=row.moment("start_time", TIME),
        run_s=row.number("duration", 0.0),
        gpus=gpus,
        user=row.text("user"),
        account=row.text("vc"),
        cpus=row.whole("cpu_num", 0) if row.text("cpu_num") else 0,
    )
