# SPDX-License-Identifier: Apache-2.0
"""A job's cgroup (v2): found by a process in it, made ready for limits of device memory.

The driver keeps such limits in the kernel's dmem controller where there is one (Linux 6.14), which
every folder from the root down to the job's has to pass on; Slurm passes on only what it uses
itself. Without that controller the driver counts by itself and needs nothing of this.
"""

from pathlib import Path

from slurm_coloc.core.gpu.fence import job_cgroup
from slurm_coloc.errors import GpuError

#: Where NVIDIA's driver wants cgroup v2 to be.
ROOT = Path("/sys/fs/cgroup")
PROC = Path("/proc")


def unified() -> bool:
    """Whether cgroup v2 is there (and not v1, or v2 beside it)."""
    return (ROOT / "cgroup.controllers").is_file()


def of_job(pid: int) -> Path:
    """The folder of the job that a process belongs to. Raises GpuError where it has none."""
    try:
        text = (PROC / str(pid) / "cgroup").read_text("ascii", "replace")
    except OSError as err:
        raise GpuError(f"process {pid}: {err.strerror}", "cgroup") from err
    path = job_cgroup(text)
    if path is None:
        raise GpuError("the job has no cgroup (v2) of its own", "cgroup")
    folder = ROOT / path.removeprefix("/")
    if not folder.is_dir():
        raise GpuError(f"{folder} is not there", "cgroup")
    return folder


def pass_dmem_on(folder: Path) -> bool:
    """Let ``folder`` have limits of device memory; whether the kernel's controller counts there.
    May be called again, by several at once. Raises GpuError."""
    if (folder / "dmem.max").exists():
        return True
    if "dmem" not in (ROOT / "cgroup.controllers").read_text("ascii").split():
        return False
    for parent in reversed([one for one in folder.parents if one.is_relative_to(ROOT)]):
        try:
            if "dmem" not in (parent / "cgroup.subtree_control").read_text("ascii").split():
                (parent / "cgroup.subtree_control").write_text("+dmem", "ascii")
        except OSError as err:
            raise GpuError(f"{parent} does not pass dmem on: {err.strerror}", "cgroup") from err
    return (folder / "dmem.max").exists()
