# SPDX-License-Identifier: Apache-2.0
"""The levels of the memory fence, the strongest first. Rules and words only, no I/O.

1. ``cgroup``: the kernel counts all device memory of all processes of the job and refuses what is
   above the limit (driver r615 / CUDA 13.4, cgroup v2, no MIG).
2. ``mps``: the MPS server refuses each of its clients what is above that client's share.
3. ``framework``: PyTorch or JAX refuses itself; a program that asks CUDA directly is not held.
4. ``none``: a promise.
"""

import re
from enum import StrEnum

#: First driver with memory limits of cgroups, "MPS v3 Memory Partitioning" in NVIDIA's MPS guide.
FIRST_DRIVER = 615
#: A task of Slurm is in <job>/step_<n>/...; the job's own folder is job_<n>, from 26.05 on a SLUID.
_STEP = r"/step_(?:[0-9]+|batch|interactive|extern)(?:/|$)"
_UNSAFE = r"(?:^|/)\.\.?(?:/|$)|//|[\x00-\x1f\x7f]"


class FenceLevel(StrEnum):
    """What limits a job's memory on its GPU."""

    CGROUP = "cgroup"
    MPS = "mps"
    FRAMEWORK = "framework"
    NONE = "none"


def has_limits(driver: str) -> bool:
    """Whether a driver of this version ("615.71.04") may support memory limits of cgroups."""
    first = driver.partition(".")[0]
    return first.isascii() and first.isdigit() and int(first[:6]) >= FIRST_DRIVER


def job_cgroup(text: str) -> str | None:
    """The cgroup v2 path of the job, from ``text``, the /proc/PID/cgroup of its task; None where
    the task is in no cgroup of a job's own (proctrack/linuxproc, cgroup v1)."""
    for line in text.splitlines():
        if not line.startswith("0::/"):
            continue
        path = line.removeprefix("0::")
        step = re.search(_STEP, path)
        if step and step.start() > 0 and not re.search(_UNSAFE, path):
            return path[: step.start()]
    return None
