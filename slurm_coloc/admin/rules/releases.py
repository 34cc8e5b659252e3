# SPDX-License-Identifier: Apache-2.0
"""What this release of Slurm does wrong with shared GPUs, and what it can.

As admin/rules/slurm_conf: pure checks of `scontrol show config`.
"""

from collections.abc import Callable

from slurm_coloc.admin.rules.finding import Finding, Status, judge
from slurm_coloc.admin.rules.slurm_conf import Conf, value, words
from slurm_coloc.core.slurm.cluster import MULTI_GPU_PARAMETER
from slurm_coloc.core.slurm.releases import (
    SEVERAL_GPUS,
    SOUND_BACKFILL,
    SPREAD_JOB_CRASH,
    SUPPORTED,
    WHOLE_APART,
    Release,
    parse_release,
)


def _release(conf: Conf) -> Release:
    return parse_release(value(conf, "SLURM_VERSION"))


def release(conf: Conf) -> Finding:
    """22.05 to 23.11.4 put a whole-GPU job and shard jobs on one device."""
    text = value(conf, "SLURM_VERSION")
    number = _release(conf)
    if not SUPPORTED.holds(number):
        return Finding("slurm-release", Status.FAIL, text, "slurm-coloc needs Slurm 22.05 or later")
    return judge(
        "slurm-release",
        WHOLE_APART.holds(number),
        text,
        "before 23.11.5 Slurm puts whole-GPU and shard jobs on one device: jobs of --coloc ask for"
        " all shards instead, other users' --gpus=1 may still meet them; upgrade",
        Status.WARN,
    )


def backfill(conf: Conf) -> Finding:
    """24.11.5 plans as if a GPU that the other kind holds were free; 25.11.4 does not (ADR 20)."""
    text, number = value(conf, "SLURM_VERSION"), _release(conf)
    return judge(
        "slurm-backfill",
        not WHOLE_APART.holds(number) or SOUND_BACKFILL.holds(number),
        text,
        "a job that waits for a whole GPU where shares run, or for a share where a whole GPU is"
        " held, keeps backfill from that node until it starts (seen on 24.11.5, not on 25.11.4):"
        " give jobs without a GPU other nodes or a higher PriorityTier, or upgrade",
        Status.WARN,
    )


def several_gpus(conf: Conf) -> Finding:
    """Whether jobs of several GPUs can share them; a site may well do without."""
    number = _release(conf)
    can = MULTI_GPU_PARAMETER.lower() in words(conf, "SelectTypeParameters")
    if not can:
        return Finding(
            "several-gpus",
            Status.NA,
            f"jobs of several GPUs get whole ones (no {MULTI_GPU_PARAMETER} in"
            " SelectTypeParameters)",
        )
    found = (
        f"{MULTI_GPU_PARAMETER}: a job with one GPU a task shares each; Slurm may split shards that"
        " users ask for themselves over several GPUs, those of --coloc it does not"
    )
    if not SEVERAL_GPUS.holds(number):
        todo = f"untried before 24.11: no job is shared; take {MULTI_GPU_PARAMETER} out"
        return Finding("several-gpus", Status.WARN, found, f"{todo} of slurm.conf")
    if number[:2] == SPREAD_JOB_CRASH:
        return Finding(
            "several-gpus",
            Status.WARN,
            f"{found}. Anybody's --gpus=1 --spread-job ends slurmctld 24.11.5 under it (Slurm's own"
            " defect)",
            "clear or refuse --spread-job of GPU jobs in job_submit.lua (bitflags,"
            f" slurm.SPREAD_JOB), or take {MULTI_GPU_PARAMETER} out of slurm.conf",
        )
    return Finding("several-gpus", Status.OK, found)


RELEASE_CHECKS: tuple[Callable[[Conf], Finding], ...] = (release, backfill, several_gpus)
