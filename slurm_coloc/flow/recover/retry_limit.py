# SPDX-License-Identifier: Apache-2.0
"""Counts the steps that Slurm refused, and releases the job after too many."""

import time
from collections.abc import Callable
from typing import TypeVar

import structlog

from slurm_coloc.adapters.slurm import SlurmClient
from slurm_coloc.adapters.store.table import Table
from slurm_coloc.core.records.lists import Listed
from slurm_coloc.core.slurm.job import JobView
from slurm_coloc.errors import SlurmError

log = structlog.get_logger()

#: refusals after which a job is released, so that none stays in a hold of ours
MAX_TRIES = 12


L = TypeVar("L", bound=Listed)


def counted(what: str, table: Table[L], row: L, err: SlurmError, **more: object) -> int:
    """Count a refused step of ``row`` and store the number with ``more``; returns the number."""
    tries = row.tries + (not err.away)  # waiting for a slurmctld that is away is free
    log.warning(what, jobid=row.job_id, error=err.message, tries=tries)
    table.change(row, tries=tries, updated_s=time.time(), **more)
    return tries


async def refused(
    what: str,
    table: Table[L],
    slurm: SlurmClient,
    row: L,
    err: SlurmError,
    held: Callable[[JobView], bool],
) -> str:
    """Count the failure of a step of ``row``; "" while it will be tried again, else the text to
    close the row with. The job is released then, where ``held`` says that it is in our hold."""
    if counted(what, table, row, err, note=err.message) < MAX_TRIES:
        return ""
    try:
        view = await slurm.job(row.job_id)
        if view is not None and held(view):
            await slurm.release(view.handle)
    except SlurmError as again:
        log.warning(what, jobid=row.job_id, error=again.message, result="still held")
        return ""
    return f"given up, the job goes on as it is: {err.message}"


async def notify(slurm: SlurmClient, view: JobView, line: str) -> None:
    """Write a line into a job's own log, where it has one; `coloc explain` has it too."""
    try:
        await slurm.notify(view.handle, line)
    except SlurmError as err:
        log.warning("notify", jobid=view.job_id, error=err.message)
