# SPDX-License-Identifier: Apache-2.0
"""The GPUs of a node as slurmd lists them, in the order of its own numbers.

SLURM_JOB_GPUS counts the gpu gres of a node as slurmd has merged them: in slurm.conf's order of
types, within a type in gres.conf's, whatever the device files are called (tried 22.05 and 24.11).
On a node with whole GPUs alone that is mostly the minor number; with MIG devices it is not. So
slurmd itself is asked: ``slurmd -G`` prints that list and ends (0.02 s).
"""

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from slurm_coloc.errors import GpuError

LIMIT_S = 2.0
USUAL = ("/usr/sbin/slurmd", "/usr/local/sbin/slurmd", "/opt/slurm/sbin/slurmd")
ANCESTORS = 8
_GPU = re.compile(r"Gres Name=gpu Type=(\S+) Count=(\d+) .*?File=(\S+)")
_RANGE = re.compile(r"(.*)\[([0-9,-]+)\](.*)")


class GresGpu(NamedTuple):
    """One gpu gres of the node: its type ("" for none), and its device files."""

    type: str
    files: tuple[str, ...]


def gpus_of_slurmd(environ: Mapping[str, str], node: str) -> list[GresGpu]:
    """The node's gpu gres, at the place that SLURM_JOB_GPUS calls them by. Raises GpuError.

    ``environ``: a hook's; slurmd tells its hooks SLURM_CONF.
    """
    program = _program()
    own = {name: environ[name] for name in ("SLURM_CONF", "LD_LIBRARY_PATH") if name in environ}
    try:
        done = subprocess.run(
            # By that name: as slurmd-wlm, what Debian's slurmd points to, it reads no device.
            ["slurmd", "-G", "-N", node],
            executable=program,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_S,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", **own},
            cwd="/",
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as err:
        raise GpuError(f"{program} -G: {err}", "gres") from err
    found = parse_gpus(done.stdout + done.stderr)
    if not found:
        raise GpuError(f"{program} -G lists no GPU (exit {done.returncode})", "gres")
    return found


def parse_gpus(text: str) -> list[GresGpu]:
    """The gpu gres of ``slurmd -G``: one line each, or one for several GPUs of a range. 24.11 joins
    the files of MultipleFiles by commas."""
    found = []
    for kind, count, files in _GPU.findall(text):
        names = _files(files)
        each = [(name,) for name in names] if len(names) == int(count) else [tuple(names)]
        found += [GresGpu("" if kind == "(null)" else kind, one) for one in each]
    return found


def _files(text: str) -> list[str]:
    """Names of ``/dev/nvidia[0-3]`` or ``/dev/nvidia1,/dev/nvidia-caps/nvidia-cap[111-112]``."""
    found: list[str] = []
    for item in re.findall(r"[^,\[]+(?:\[[^\]]*\][^,\[]*)?", text):
        hit = _RANGE.fullmatch(item)
        if not hit:
            found.append(item)
            continue
        for part in hit[2].split(","):
            first, _, last = part.partition("-")
            numbers = range(int(first), min(int(last or first), int(first) + 1024) + 1)
            found += [f"{hit[1]}{number}{hit[3]}" for number in numbers]
    return found


def _program() -> str:
    """slurmd's own program: an ancestor of the hook, else where packages put it."""
    pid = os.getppid()
    for _ in range(ANCESTORS):
        folder = Path(f"/proc/{pid}")
        try:
            if (folder / "comm").read_text().startswith("slurmd"):
                return str((folder / "exe").readlink())
            pid = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
        if pid <= 1:
            break
    return next((path for path in USUAL if os.access(path, os.X_OK)), USUAL[0])
