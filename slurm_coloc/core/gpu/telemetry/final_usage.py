# SPDX-License-Identifier: Apache-2.0
"""A run's record at its end: the agent's record, completed by the driver's accounting."""

from collections.abc import Callable, Mapping
from typing import Any

from slurm_coloc.core.gpu.peak import SLACK_S, Use
from slurm_coloc.core.gpu.telemetry.use import GAP_S, resume

Plain = dict[str, Any]


def closed(
    record: Plain,
    uses: Mapping[str, list[Use]] | None,
    job_of: Callable[[str, Use], int | None],
    ended_s: float,
) -> Plain:
    """``record`` at the end of the run. ``uses``: the processes of each GPU in the driver's
    accounting, None without accounting; ``job_of``: the job of a process that began after the
    agent's last sample (0: another run's, None: not known). Raises KeyError, TypeError or
    ValueError for an invalid record."""
    run = resume(record)
    if uses is None:
        run.accounting = False
        run.gap_s += max(0.0, ended_s - run.until_s - GAP_S)
        return run.record()
    run.accounting = True
    # What is known first: it tells what the others came beside.
    late = [
        (uuid, use)
        for uuid, each in uses.items()
        for use in each
        if not run.pids.account(uuid, use)
        and use.start_s >= run.until_s - GAP_S  # the agent has seen older ones
        and use.start_s >= run.began_s - SLACK_S
    ]
    for uuid, use in late:
        job_id = job_of(uuid, use)
        if job_id is None:
            run.pids.miss(uuid, use)
        elif job_id == run.job_id:
            run.pids.add(uuid, use)
    return run.record()


def peak_mib(record: Plain) -> int | None:
    """The peak of the fullest GPU (MiB), where nothing of the run was missed."""
    peaks = [int(gpu["peak_mib"]) for gpu in record["gpus"]]
    return max(peaks, default=0) or None if record["complete"] else None
