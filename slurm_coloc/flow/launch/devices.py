# SPDX-License-Identifier: Apache-2.0
"""Stage launch, which GPUs and MIG devices a job got on this node.

slurmd tells its hooks numbers. They are places in slurmd's own list, which is asked for; the device
files that stand there say which GPU or which MIG device it is. Mostly a place is also the minor
number of the device file, but not where gres.conf leaves a card out, where types stand in another
order, or where a GPU is in MIG mode. Where slurmd finds MIG devices by itself (AutoDetect=nvml),
CUDA_VISIBLE_DEVICES has their UUIDs.

The list is kept in run_dir: on a node so busy that slurmd does not print it in time, a job would
else be taken for one on another GPU, or start with numbers that are not CUDA's and find no GPU.
"""

import contextlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from slurm_coloc.adapters import hookenv, nvml, slurmconf, spool
from slurm_coloc.adapters.nvml.mig import Mig, MigGpu, mig_uuid
from slurm_coloc.adapters.slurmd import GresGpu, gpus_of_slurmd
from slurm_coloc.core.gpu.mig import slice_mib, slice_of
from slurm_coloc.errors import ColocError, GpuError

#: in run_dir: [type, [file, ...]] of each GPU, as slurmd listed them last
LAST_LIST = ".gpus-of-slurmd"
_WHOLE = r"/dev/nvidia(\d+)"


def gpus_of_job(
    job: hookenv.HookJob, environ: Mapping[str, str], lib: nvml.Nvml, run_dir: Path
) -> tuple[list[nvml.Gpu], bool, list[int]]:
    """What the job got here, in the order of its numbers; whether Slurm's numbers are none of
    CUDA's on this node; and the MiB of each that its type gives to one job, 0 where it says
    nothing. Raises GpuError."""
    cut = Mig(lib).gpus()
    if job.uuids:
        return lib.by_uuid(job.uuids), bool(cut), [0] * len(job.uuids)
    try:
        listed = _listed(environ, job.node, run_dir)
    except GpuError:
        if cut:
            raise
        return lib.by_minor(job.numbers), False, [0] * len(job.numbers)
    found = [_one(number, listed, cut, lib) for number in job.numbers]
    sizes = [slice_mib(listed[number].type) or 0 for number in job.numbers]
    return found, bool(cut) or not _by_minor(listed), sizes


def _by_minor(listed: list[GresGpu]) -> bool:
    """Whether the place in slurmd's list is the number of the device file, for all."""
    return all(gres.files == (f"/dev/nvidia{place}",) for place, gres in enumerate(listed))


def _one(number: int, listed: list[GresGpu], cut: list[MigGpu], lib: nvml.Nvml) -> nvml.Gpu:
    if number >= len(listed):
        raise GpuError(f"slurmd -G lists {len(listed)} GPUs, and the job got number {number}")
    gres = listed[number]
    if slice_of(gres.type):
        return lib.by_uuid([mig_uuid(gres.type, gres.files, cut)])[0]
    for file in gres.files:
        if found := re.fullmatch(_WHOLE, file):
            return lib.by_minor([int(found[1])])[0]
    raise GpuError(f"gres {gres.type}: no device file /dev/nvidiaN ({', '.join(gres.files)})")


def _listed(environ: Mapping[str, str], node: str, run_dir: Path) -> list[GresGpu]:
    """slurmd's list, or the last one that it gave here. Raises GpuError where there is neither."""
    try:
        found = gpus_of_slurmd(environ, node, slurmconf.place(environ))
    except GpuError:
        # Only a change of gres.conf makes it wrong, and then a later job of this node renews it.
        if last := _last_list(run_dir):
            return last
        raise
    if found != _last_list(run_dir):
        with contextlib.suppress(ColocError, OSError), spool.open_dir(run_dir, None) as fd:
            spool.write_file(fd, LAST_LIST, json.dumps(found).encode(), 0o600, sync=False)
    return found


def _last_list(run_dir: Path) -> list[GresGpu]:
    """The list of an earlier job; [] without one."""
    try:
        with spool.open_dir(run_dir, None) as fd:
            data = spool.read_file(fd, LAST_LIST, {0, os.geteuid()})
        rows = json.loads(data or "[]")
        return [GresGpu(str(kind), tuple(map(str, files))) for kind, files in rows]
    except (ColocError, OSError, ValueError, TypeError):
        return []
