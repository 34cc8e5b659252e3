# SPDX-License-Identifier: Apache-2.0
"""Stage measure, what is done about an overrun: a line in the job's log, and, where the site wants
that, the end of the processes that hold the memory.

Neither raises nor lasts: whatever a job does about it is a reason. Ended are exactly the processes
that were in the sample, by pid and start time: first the MPS server ends their GPU work, then they
get SIGTERM, then SIGKILL.
"""

from collections.abc import Mapping

from slurm_coloc.adapters import procs, userfile
from slurm_coloc.adapters.hookenv import HookSettings
from slurm_coloc.adapters.joblog.append import append
from slurm_coloc.adapters.mps import processes
from slurm_coloc.adapters.mps.jobs import Gpu
from slurm_coloc.adapters.mps.processes import Process
from slurm_coloc.core.gpu.overrun import gib
from slurm_coloc.errors import ColocError
from slurm_coloc.flow.measure.overruns import Begun
from slurm_coloc.flow.node.jobs_here import starts_of

LOG_S = 1.0  # for the line in the job's log
PATIENCE_S = 2.0  # between SIGTERM and SIGKILL


def write_to_log(settings: HookSettings, one: Begun, *, ends: bool) -> str:
    """Write what the job holds into its log; "" or why that could not be done."""
    job, change = one.job, one.change
    what = (
        "its processes there are ended (fence.overrun = end)"
        if ends
        else "neighbours may run out of memory by it"
    )
    line = (
        f"coloc: job {job.job_id} holds {gib(change.held_mib)} of GPU memory on {one.uuid},"
        f" {gib(change.promised_mib)} were promised to it: {what}"
    )
    try:
        inodes = starts_of(settings.run_dir, job.job_id)
        if not inodes:
            return "it has no log of its own"
        held = [each.pid for each in one.held]
        others = [pid for pid in procs.of_job(job.job_id, job.uid) if pid not in held]
        return append(userfile.becomes(job.uid), [*held, *others], inodes, line, LOG_S)
    except (ColocError, OSError) as err:
        return _why(err)


def end_processes(settings: HookSettings, one: Begun, environ: Mapping[str, str]) -> str:
    """End what holds the memory; "" or what stays, in words."""
    try:
        mine = _still_there(one)
        pids = {each.pid for each in mine}
        gpu = Gpu(settings.run_dir, one.uuid, settings.mps_control, environ)
        why = ""
        try:
            gpu.end_clients(pids.__contains__)
        except (ColocError, OSError) as err:
            why = _why(err)
        stay = processes.end_all(mine, PATIENCE_S)
    except (ColocError, OSError) as err:
        return f"its processes could not be ended: {_why(err)}"
    if not stay:
        return ""
    left = ", ".join(str(each.pid) for each in stay[:8])
    return f"could not be ended: process {left}{f' ({why})' if why else ''}"


def _still_there(one: Begun) -> list[Process]:
    """The processes of the sample that are still those, and still the job's."""
    job = one.job
    found = []
    for each in one.held:
        now = procs.find(each.pid, {job.job_id: job.uid}.get)
        if now is not None and now.job_id == job.job_id and now.started == each.started:
            found.append(Process(now.pid, now.started))
    return found


def _why(err: Exception) -> str:
    return str(getattr(err, "message", "") or getattr(err, "strerror", "") or err)[:120]
