# SPDX-License-Identifier: Apache-2.0
"""What slurm.conf must say for slurm-coloc, as pure checks of `scontrol show config`.

Each check returns one Finding: what was looked at, how it stands, what was found, what to do.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from slurm_coloc.core.cluster import FIRST_SOUND_RELEASE, ClusterShape
from slurm_coloc.core.gpu import GPU_TYPES

Conf = Mapping[str, str]

MIN_JOB_AGE_S = 60  # a FAILED job must still be known when its report arrives and is acted on


class Status(StrEnum):
    """How a check ended; only FAIL makes `coloc doctor` end with 1."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    NA = "not-applicable"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check; ``todo`` is empty where nothing is to be done."""

    check: str
    status: Status
    found: str
    todo: str = ""


def value(conf: Conf, key: str) -> str:
    """A setting of slurm.conf; "" where it is not set. 24.11 numbers some keys: ``Prolog[0]``."""
    text = conf.get(key) or conf.get(f"{key}[0]") or ""
    return "" if text in ("(null)", "N/A", "none") else text


def values(conf: Conf, key: str) -> list[str]:
    """All values of a key that may be given several times (Prolog[0], Prolog[1], ... of 24.11)."""
    numbered = re.compile(rf"{re.escape(key)}(?:\[\d+\])?")
    return [
        text
        for name in conf
        if numbered.fullmatch(name) and (text := conf[name]) not in ("", "(null)", "N/A")
    ]


def words(conf: Conf, key: str) -> list[str]:
    """A list setting in small letters."""
    return [word.strip().lower() for word in value(conf, key).split(",") if word.strip()]


def _judge(name: str, good: bool, found: str, todo: str, bad: Status = Status.FAIL) -> Finding:
    return Finding(name, Status.OK if good else bad, found, "" if good else todo)


def release(conf: Conf) -> Finding:
    """22.05 to 23.11.4 put a whole-GPU job and shard jobs on one device."""
    text = value(conf, "SLURM_VERSION")
    number = tuple(int(part) for part in re.findall(r"\d+", text)[:3])
    if number < (22, 5):
        return Finding("slurm-release", Status.FAIL, text, "slurm-coloc needs Slurm 22.05 or later")
    return _judge(
        "slurm-release",
        number >= FIRST_SOUND_RELEASE,
        text,
        "before 23.11.5 Slurm puts whole-GPU and shard jobs on one device: jobs of --coloc ask for"
        " all shards instead, other users' --gpus=1 may still meet them; upgrade",
        Status.WARN,
    )


def gres_types(conf: Conf) -> Finding:
    """Both gres must be declared."""
    found = words(conf, "GresTypes")
    return _judge(
        "gres-types",
        {"gpu", "shard"} <= set(found),
        ",".join(found) or "none",
        "slurm.conf: GresTypes=gpu,shard",
    )


def select_type(conf: Conf) -> Finding:
    """Shards exist in cons_tres alone."""
    found = value(conf, "SelectType")
    return _judge(
        "select-type",
        found == "select/cons_tres",
        found or "not set",
        "slurm.conf: SelectType=select/cons_tres",
    )


def job_submit(conf: Conf) -> Finding:
    """The hook."""
    found = words(conf, "JobSubmitPlugins")
    return _judge(
        "job-submit",
        "lua" in found,
        ",".join(found) or "none",
        "slurm.conf: JobSubmitPlugins=lua, and job_submit.lua beside slurm.conf calls coloc.lua",
    )


def job_requeue(conf: Conf) -> Finding:
    """The hook sets it for each job that it takes; the default helps jobs of other ways."""
    found = value(conf, "JobRequeue")
    return _judge(
        "job-requeue",
        found == "1",
        f"JobRequeue={found or 'not set'}",
        "only jobs whose request was rewritten get Requeue=1; slurm.conf: JobRequeue=1 for all",
        Status.WARN,
    )


def file_append(conf: Conf) -> Finding:
    """A requeue truncates the job's log, unless the open mode is append."""
    found = value(conf, "JobFileAppend")
    return _judge(
        "job-file-append",
        found == "1",
        f"JobFileAppend={found or 'not set'}",
        "a requeue truncates the log of the run that failed; slurm.conf: JobFileAppend=1",
        Status.WARN,
    )


def min_job_age(conf: Conf) -> Finding:
    """Recovery acts on a job that has FAILED: slurmctld must still know it."""
    found = value(conf, "MinJobAge")
    number = re.match(r"\d+", found)
    return _judge(
        "min-job-age",
        number is not None and int(number[0]) >= MIN_JOB_AGE_S,
        found or "not set",
        f"slurm.conf: MinJobAge={MIN_JOB_AGE_S} or more (300 is Slurm's default)",
    )


def priority_type(conf: Conf) -> Finding:
    """priority/basic counts down from 2^32: a set priority of 100000 would be the lowest."""
    found = value(conf, "PriorityType")
    return _judge(
        "priority-type",
        found != "priority/basic",
        found or "not set",
        "with priority/basic a raised priority is the lowest of all: set recovery.raise_by ="
        ' "nice" or "none" in coloc.toml, or PriorityType=priority/multifactor',
        Status.WARN,
    )


def accounting(conf: Conf) -> Finding:
    """Billing and limits see shards only when they are tracked."""
    if not value(conf, "AccountingStorageType") or "none" in value(conf, "AccountingStorageType"):
        return Finding("accounting-tres", Status.NA, "no accounting storage")
    found = words(conf, "AccountingStorageTRES")
    return _judge(
        "accounting-tres",
        "gres/shard" in found,
        ",".join(found) or "none",
        "shard jobs are not accounted: slurm.conf: AccountingStorageTRES=gres/gpu,gres/shard",
        Status.WARN,
    )


SLURM_CHECKS: tuple[Callable[[Conf], Finding], ...] = (
    release,
    gres_types,
    select_type,
    job_submit,
    job_requeue,
    file_append,
    min_job_age,
    priority_type,
    accounting,
)


def billing(conf: Conf, weights: Mapping[str, str], shared: set[str]) -> Finding:
    """TRESBillingWeights of the partitions that have shared GPUs (``weights`` by partition)."""
    if accounting(conf).status is Status.NA:
        return Finding("billing-weights", Status.NA, "no accounting storage")
    bare = sorted(name for name in shared if "gres/shard" not in weights.get(name, "").lower())
    return _judge(
        "billing-weights",
        not bare,
        f"no weight of gres/shard: {', '.join(bare)}" if bare else "gres/shard has a weight",
        "shard jobs are billed no GPU: TRESBillingWeights=...,GRES/shard=<weight of a GPU over its"
        " shards>",
        Status.WARN,
    )


def shard_counts(shape: ClusterShape, shard_mib: int) -> Finding:
    """Shards of each node against its GPUs' memory as their type tells it."""
    cut = [node for node in shape.nodes if node.shards]
    if not cut:
        return Finding(
            "shard-counts",
            Status.FAIL,
            f"{len(shape.nodes)} GPU nodes, none with shards",
            "gres.conf: Name=shard Count=<GPUs x shards of one>; slurm.conf: Gres=...,shard:<n>",
        )
    wrong = []
    for node in cut:
        if node.shards % node.gpus:
            wrong.append(f"{node.name}: {node.shards} shards over {node.gpus} GPUs")
        most = _largest(node.gpu_type)
        if most and node.shards_per_gpu * shard_mib > most:
            wrong.append(
                f"{node.name}: {node.shards_per_gpu} shards of {shard_mib} MiB are more than a"
                f" {node.gpu_type} has ({most} MiB)"
            )
    each = ", ".join(f"{node.name} {node.gpus}x{node.shards_per_gpu}" for node in cut[:8])
    return _judge(
        "shard-counts",
        not wrong,
        "; ".join(wrong) or each,
        "count = GPUs x floor((usable MiB - pool.margin_mib) / pool.shard_mib)",
    )


def _largest(gpu_type: str | None) -> int:
    """Memory (MiB) of the largest known GPU whose name begins like ``gpu_type``; 0: not known."""
    if not gpu_type:
        return 0
    base = gpu_type.lower().split("-")[0].split("_")[0]
    sizes = [kind.total_mib for name, kind in GPU_TYPES.items() if name.split("-")[0] == base]
    return max(sizes, default=0)
