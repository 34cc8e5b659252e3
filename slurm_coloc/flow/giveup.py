# SPDX-License-Identifier: Apache-2.0
"""A step of a durable list that Slurm refused: counted, and after so many the job is let go."""

import time
from collections.abc import Callable

import structlog

from slurm_coloc.adapters.slurm import SlurmClient
from slurm_coloc.adapters.store import Row
from slurm_coloc.adapters.store.table import Table
from slurm_coloc.core.job import JobView
from slurm_coloc.errors import SlurmError

log = structlog.get_logger()

#: a job whose step Slurm refused so often is let go: nothing is ever left in a hold of ours
MAX_TRIES = 12


def key_of(row: Row) -> tuple[str, int, int]:
    """What a row of such a list is about: decision, job and run."""
    return row["decision"], row["job_id"], row["restart"]


async def refused(
    what: str,
    table: Table,
    slurm: SlurmClient,
    row: Row,
    err: SlurmError,
    held: Callable[[JobView], bool],
) -> str:
    """Count the failure of a step of ``row``; "" while it will be tried again, else what to close
    it with: the job has been released where ``held`` says that it waits in our hold."""
    tries = row["tries"] + (not err.away)  # waiting for a slurmctld that is away is free
    log.warning(what, jobid=row["job_id"], error=err.message, tries=tries)
    table.change(row, tries=tries, note=err.message, updated_s=time.time())
    if tries < MAX_TRIES:
        return ""
    try:
        view = await slurm.job(row["job_id"])
        if view is not None and held(view):
            await slurm.release(view.handle)
    except SlurmError as again:
        log.warning(what, jobid=row["job_id"], error=again.message, result="still held")
        return ""
    return f"given up, the job goes on as it is: {err.message}"
