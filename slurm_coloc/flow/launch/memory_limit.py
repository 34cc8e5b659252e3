# SPDX-License-Identifier: Apache-2.0
"""Stage launch, in slurmstepd: `coloc fence JOB PID`, the limit of device memory of a job's cgroup.

The job's cgroup does not exist yet in the Prolog. So the SPANK plugin calls this as root when the
first task of a step is made and does not run yet. What to set stands in <run_dir>/<job id>.share,
which the Prolog wrote; nothing of the user's is read but a pid that slurmstepd gave. The limit is
set on each of the job's GPUs, read back, written to standard output ("cgroup <MiB>") and to
<run_dir>/<job id>.fence for the Epilog. Called for each step: a limit that stands already is left.

Only the hard limit is set. A soft one reserves memory in the cgroups above, which somebody would
have to take back before the job's cgroup goes.
"""

import os
import sys
from collections.abc import Mapping, Sequence

from slurm_coloc.adapters import cgroup, hookenv, nvml, spool
from slurm_coloc.core.gpu.fence import FenceLevel
from slurm_coloc.errors import GpuError, UsageFault
from slurm_coloc.flow.node.jobs_here import FENCE


def run(environ: Mapping[str, str], argv: Sequence[str]) -> str:
    """Set the limit; returns the log line. Raises ColocError where it cannot be had."""
    job_id, pid = _numbers(argv)
    settings = hookenv.read_settings(environ)
    with spool.open_dir(settings.run_dir, None) as fd:
        text = spool.read_file(fd, f"{job_id}.share", {0, os.geteuid()}, 4096)
        wanted = _lines(text or b"")
        uuids = wanted.get("cgroup_uuids", "").split(",")
        limit_mib = _mib(wanted.get("cgroup_mib", ""))
        folder = cgroup.of_job(pid)
        counts = "dmem" if cgroup.pass_dmem_on(folder) else "driver"
        with nvml.Nvml() as lib:
            for uuid in uuids:
                hold(lib, uuid, str(folder), limit_mib)
        record = f"fence 1\nrung {FenceLevel.CGROUP}\nmib {limit_mib}\n"
        spool.write_file(fd, f"{job_id}.{FENCE}", record.encode("ascii"), 0o600)
    sys.stdout.write(f"{FenceLevel.CGROUP} {limit_mib}\n")
    where = f"gpu={','.join(uuids)} cgroup={folder}"
    return f"jobid={job_id} {where} limit_mib={limit_mib} counted_by={counts}"


def hold(lib: nvml.Nvml, uuid: str, folder: str, limit_mib: int) -> None:
    """Set the limit unless it is set already, and read it back. Raises GpuError."""
    if lib.group_limit_mib(uuid, folder) == limit_mib:
        return
    lib.limit_group(uuid, folder, limit_mib)
    found = lib.group_limit_mib(uuid, folder)
    # NVIDIA's own example sets 4000 MiB and reads 4096 back: the driver may round up a little.
    if found is None or not limit_mib <= found <= limit_mib + 256:
        raise GpuError(f"a limit of {limit_mib} MiB reads back as {found}", "cgroup")


def level_of(text: bytes | None) -> str | None:
    """What a job's .fence file says; None without one."""
    level = _lines(text or b"").get("rung")
    return level if level in set(FenceLevel) else None


def mib_of(text: bytes | None) -> int | None:
    """The limit in a job's .fence file; None without one."""
    mib = _lines(text or b"").get("mib", "")
    return int(mib) if mib.isascii() and mib.isdigit() and len(mib) <= 9 else None


def _lines(text: bytes) -> dict[str, str]:
    """The lines "NAME VALUE" of a .share or .fence file of this release, {} of any other."""
    lines = text.decode("ascii", "replace").splitlines()
    if not lines or lines[0] not in ("share 1", "fence 1"):
        return {}
    pairs = (line.partition(" ") for line in lines[1:])
    return {name: value for name, _, value in pairs}


def _numbers(argv: Sequence[str]) -> tuple[int, int]:
    if len(argv) != 2 or not all(one.isascii() and one.isdigit() for one in argv):
        raise UsageFault("fence: two numbers are wanted, JOB and PID")
    if max(map(len, argv)) > 10:
        raise UsageFault("fence: JOB and PID have ten digits at most")
    return int(argv[0]), int(argv[1])


def _mib(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 9) or int(text) == 0:
        raise GpuError("the Prolog left no limit for this job's cgroup", "cgroup")
    return int(text)
