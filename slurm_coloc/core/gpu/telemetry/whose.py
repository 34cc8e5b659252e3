# SPDX-License-Identifier: Apache-2.0
"""The job of a process, from signs in /proc that its user cannot write.

In order of trust: the cgroup that slurmstepd made (root's), the title of a slurmstepd above the
process, and last the environment, which the user can write and which therefore counts only together
with the uid of that job (see adapters/procs).
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

# cgroup v2: /system.slice/[NODE_]slurmstepd.scope/job_12/step_0/...; from 26.05 on the SLUID of the
# job in place of job_12 ("s" and 13 digits of Crockford's base 32, slurm's src/common/sluid.c).
# cgroup v1: /slurm[_NODE]/uid_1000/job_12/... Anchored at the root of the hierarchy: below it a
# user may make groups of any name, but only inside his own session's.
_V2 = (
    r"(?P<top>(?:/\.\.)*(?:/system\.slice)?/(?:[^/]+_)?slurmstepd\.scope/"
    r"(?:job_(?P<job>[0-9]{1,10})|(?P<sluid>s[0-9A-HJKMNP-TV-Z]{13})))(?:/|$)"
)
_V1 = r"(?:/\.\.)*/slurm(?:_[^/]+)?/uid_[0-9]+/job_(?P<job>[0-9]{1,10})(?:/|$)"
_TITLE = rb"slurmstepd: \[([0-9]{1,10})\."
STEPD = "slurmstepd"

#: programs of MPS: its server holds GPU memory for its clients
MPS = ("nvidia-cuda-mps-server", "nvidia-cuda-mps-control")
#: programs of no job that may be on a GPU: display servers, the driver's, DCGM's and MPS's
SYSTEM = frozenset(
    {
        *("Xorg", "X", "Xwayland", "gnome-shell", "gdm-x-session", "nvidia-persistenced"),
        *("nv-hostengine", "dcgmi", "dcgm-exporter", "dcgmproftester", "nvidia-smi"),
        *(*MPS, "nv-fabricmanager"),
    }
)
COMM = 15  # the kernel cuts a program's name there


class Group(NamedTuple):
    """The job in a cgroup path. ``top``: the job's own folder in the hierarchy, for a SLUID."""

    job_id: int | None = None
    sluid: str = ""
    top: str = ""


def of_cgroup(text: str) -> Group | None:
    """The job in /proc/PID/cgroup; None where no line of it is Slurm's."""
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            if hit := re.match(_V2, path):
                job = int(hit["job"]) if hit["job"] else None
                return Group(job, hit["sluid"] or "", hit["top"])
        elif hit := re.match(_V1, path):
            return Group(int(hit["job"]))
    return None


def of_title(cmdline: bytes) -> int | None:
    """The job that a slurmstepd serves: its title is ``slurmstepd: [JOB.STEP]``."""
    hit = re.match(_TITLE, cmdline)
    return int(hit[1]) if hit else None


def of_environ(environ: bytes) -> int | None:
    """SLURM_JOB_ID in the environment with which the process was started."""
    for item in environ.split(b"\0"):
        name, _, value = item.partition(b"=")
        if name == b"SLURM_JOB_ID" and value.isdigit() and len(value) <= 10:
            return int(value)
    return None


def is_named(comm: str, names: Iterable[str] = SYSTEM) -> bool:
    """Whether a program's name, as /proc/PID/comm has it, is one of these."""
    return any(name[:COMM] == comm for name in names)
