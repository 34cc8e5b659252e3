# SPDX-License-Identifier: Apache-2.0
"""``coloc doctor``: MIG devices of the cluster, and of this node."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from slurm_coloc.adapters import probe, slurmconf
from slurm_coloc.adapters.nvml.mig import mig_uuid
from slurm_coloc.adapters.slurmd import gpus_of_slurmd
from slurm_coloc.admin.mig_plan import cut_here
from slurm_coloc.admin.rules.finding import Finding, Status
from slurm_coloc.admin.rules.mig_checks import mig
from slurm_coloc.admin.rules.slurm_conf import Conf, value
from slurm_coloc.core.gpu.mig import slice_of
from slurm_coloc.core.slurm.cluster import ClusterShape
from slurm_coloc.errors import ColocError, GpuError

_WHOLE = re.compile(r"whole_type\s*=\s*[\"']([\w.-]+)[\"']")


def checks(shape: ClusterShape, conf: Conf) -> Iterator[Finding]:
    """The checks; none where there is no MIG. ``conf``: `scontrol show config`."""
    if not any(node.slices for node in shape.nodes):
        return
    # job_submit.lua is the site's own program: its text tells what coloc.setup is called with.
    script = probe.text_of(Path(value(conf, "SLURM_CONF")).parent / "job_submit.lua")
    yield from mig(shape, _WHOLE.findall(script or ""))
    here = os.uname().nodename.partition(".")[0]
    node = next((one for one in shape.nodes if here in (one.name, one.hostname)), None)
    if node is not None and node.slices:
        yield _here(node.name)


def _here(node: str) -> Finding:
    """Whether each MIG gres that slurmd has is a device that is there."""
    try:
        cut = cut_here()
    except ColocError as err:
        return Finding("mig-node", Status.NA, f"not asked on this host: {err.message}")
    if not cut:
        return Finding("mig-node", Status.NA, "no GPU of this host is in MIG mode")
    try:
        listed = gpus_of_slurmd(os.environ, node, slurmconf.place(os.environ))
        found = [mig_uuid(one.type, one.files, cut) for one in listed if slice_of(one.type)]
    except GpuError as err:
        todo = "write the lines of `coloc mig gres` into gres.conf and restart slurmd"
        return Finding("mig-node", Status.FAIL, err.message, todo)
    there = sum(len(gpu.devices) for gpu in cut)
    text = f"{len(found)} MIG gres are devices of this node, which has {there}"
    return Finding("mig-node", Status.OK, text)
