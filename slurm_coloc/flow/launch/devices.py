# SPDX-License-Identifier: Apache-2.0
"""Stage launch, which GPUs and MIG devices a job got on this node.

slurmd tells its hooks numbers. They are places in slurmd's own list, which is asked for; the device
files that stand there say which GPU or which MIG device it is. Mostly a place is also the minor
number of the device file, but not where gres.conf leaves a card out, where types stand in another
order, or where a GPU is in MIG mode. Where slurmd finds MIG devices by itself (AutoDetect=nvml),
CUDA_VISIBLE_DEVICES has their UUIDs.

The list is kept in run_dir, so that slurmd is asked once after its start or a change of its files
and not for each job. On a node so busy that slurmd does not print it in time, a job would else be
taken for one on another GPU, or find no GPU at all.
"""

import contextlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from slurm_coloc.adapters import hookenv, nvml, slurmconf, slurmd, spool
from slurm_coloc.adapters.nvml.mig import Mig, MigGpu, mig_uuid
from slurm_coloc.adapters.slurmd import GresGpu
from slurm_coloc.core.gpu.mig import slice_mib, slice_of
from slurm_coloc.errors import ColocError, GpuError

#: in run_dir: what slurmd listed last, [type, [file, ...]] of each GPU, and what it depended on
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
    """slurmd's list. Not asked for again where nothing changed that it depends on; and where slurmd
    does not print it, the last one. Raises GpuError where there is neither."""
    conf = slurmconf.place(environ)
    last, key = _last_list(run_dir), slurmd.list_key(conf, slurmd.above())
    if key and last.key == key:
        return last.gpus
    try:
        found = slurmd.gpus_of_slurmd(environ, node, conf, run_dir)
    except GpuError:
        # Only a change of gres.conf makes it wrong, and then a later job of this node renews it.
        if last.gpus:
            return last.gpus
        raise
    if (key, found) != last:
        with contextlib.suppress(ColocError, OSError), spool.open_dir(run_dir, None) as fd:
            data = json.dumps({"key": key, "gpus": found}).encode()
            spool.write_file(fd, LAST_LIST, data, 0o600, sync=False)
    return found


class _Last(NamedTuple):
    """The list of an earlier job, and what it depended on."""

    key: str
    gpus: list[GresGpu]


def _last_list(run_dir: Path) -> _Last:
    """No GPUs without one."""
    try:
        with spool.open_dir(run_dir, None) as fd:
            data = spool.read_file(fd, LAST_LIST, {0, os.geteuid()})
        last = json.loads(data or "{}")
        gpus = [GresGpu(str(kind), tuple(map(str, files))) for kind, files in last["gpus"]]
        return _Last(str(last["key"]), gpus)
    except (ColocError, OSError, ValueError, TypeError, KeyError):
        return _Last("", [])
