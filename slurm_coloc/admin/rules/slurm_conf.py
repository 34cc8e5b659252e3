# SPDX-License-Identifier: Apache-2.0
"""What slurm.conf must say for slurm-coloc, as pure checks of `scontrol show config`.

Each check returns one Finding: what was looked at, how it stands, what was found, what to do.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from slurm_coloc.admin.rules.limit_plan import Plan
from slurm_coloc.core.gpu.cards import GPU_TYPES
from slurm_coloc.core.gpu.mig import slice_of
from slurm_coloc.core.slurm.billing import good, kinds_of, off_by, parse_weights, proposed
from slurm_coloc.core.slurm.cluster import (
    ClusterShape,
    suspends,
)
from slurm_coloc.core.slurm.gres import parse_gres

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


def judge(name: str, good: bool, found: str, todo: str, bad: Status = Status.FAIL) -> Finding:
    """OK where ``good``, else ``bad`` with what is to be done."""
    return Finding(name, Status.OK if good else bad, found, "" if good else todo)


def gres_types(conf: Conf) -> Finding:
    """Both gres must be declared."""
    found = words(conf, "GresTypes")
    return judge(
        "gres-types",
        {"gpu", "shard"} <= set(found),
        ",".join(found) or "none",
        "slurm.conf: GresTypes=gpu,shard",
    )


def select_type(conf: Conf) -> Finding:
    """Shards exist in cons_tres alone."""
    found = value(conf, "SelectType")
    return judge(
        "select-type",
        found == "select/cons_tres",
        found or "not set",
        "slurm.conf: SelectType=select/cons_tres",
    )


def job_submit(conf: Conf) -> Finding:
    """The hook."""
    found = words(conf, "JobSubmitPlugins")
    return judge(
        "job-submit",
        "lua" in found,
        ",".join(found) or "none",
        "slurm.conf: JobSubmitPlugins=lua, and job_submit.lua beside slurm.conf calls coloc.lua",
    )


def job_requeue(conf: Conf) -> Finding:
    """The hook sets it for each job that it takes; the default helps jobs of other ways."""
    found = value(conf, "JobRequeue")
    return judge(
        "job-requeue",
        found == "1",
        f"JobRequeue={found or 'not set'}",
        "only jobs whose request was rewritten get Requeue=1; slurm.conf: JobRequeue=1 for all",
        Status.WARN,
    )


def file_append(conf: Conf) -> Finding:
    """A requeue truncates the job's log, unless the open mode is append."""
    found = value(conf, "JobFileAppend")
    return judge(
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
    return judge(
        "min-job-age",
        number is not None and int(number[0]) >= MIN_JOB_AGE_S,
        found or "not set",
        f"slurm.conf: MinJobAge={MIN_JOB_AGE_S} or more (300 is Slurm's default)",
    )


def priority_type(conf: Conf) -> Finding:
    """priority/basic counts down from 2^32: a set priority of 100000 would be the lowest."""
    found = value(conf, "PriorityType")
    return judge(
        "priority-type",
        found != "priority/basic",
        found or "not set",
        "with priority/basic a raised priority is the lowest of all: set recovery.raise_by ="
        ' "nice" or "none" in coloc.toml, or PriorityType=priority/multifactor',
        Status.WARN,
    )


def invalid_depend(conf: Conf) -> Finding:
    """Whether Slurm cancels the dependents of a job that a late recovery would bring back."""
    kills = "kill_invalid_depend" in words(conf, "SchedulerParameters")
    return judge(
        "dependents",
        not kills,
        "kill_invalid_depend" if kills else "dependents of a failed job are kept",
        "afterok dependents of a job that runs out of GPU memory while colocd is away are cancelled"
        " before it can put the job back; without kill_invalid_depend it renews their dependency",
        Status.WARN,
    )


def accounting(conf: Conf) -> Finding:
    """Billing and limits see shards only when they are tracked."""
    if not value(conf, "AccountingStorageType") or "none" in value(conf, "AccountingStorageType"):
        return Finding("accounting-tres", Status.NA, "no accounting storage")
    found = words(conf, "AccountingStorageTRES")
    return judge(
        "accounting-tres",
        "gres/shard" in found,
        ",".join(found) or "none",
        "shard jobs are not accounted: slurm.conf: AccountingStorageTRES=gres/gpu,gres/shard",
        Status.WARN,
    )


SLURM_CHECKS: tuple[Callable[[Conf], Finding], ...] = (
    gres_types,
    select_type,
    job_submit,
    job_requeue,
    file_append,
    min_job_age,
    priority_type,
    invalid_depend,
    accounting,
)


def billing(
    conf: Conf, shape: ClusterShape, weights: Mapping[str, str], shared: set[str]
) -> Finding:
    """TRESBillingWeights of the partitions that have shared GPUs (``weights`` by partition): all
    shards of a GPU must cost that GPU."""
    if accounting(conf).status is Status.NA:
        return Finding("billing-weights", Status.NA, "no accounting storage")
    wrong, todo = [], []
    for name in sorted(shared):
        found, kinds = parse_weights(weights.get(name, "")), kinds_of(shape, name)
        if good(found, kinds):
            continue
        wrong.append(f"{name}: {off_by(found, kinds)}")
        todo.append(f"PartitionName={name} TRESBillingWeights={proposed(found, kinds)}")
    return judge(
        "billing-weights",
        not wrong,
        "; ".join(wrong) or "all shards of a GPU cost what the GPU costs",
        f"slurm.conf: {'; '.join(todo)}",
        Status.WARN,
    )


def typed_tres(conf: Conf, weights: Mapping[str, str]) -> Finding:
    """A weight of a GPU type bills nothing unless that type is accounted."""
    tracked = set(words(conf, "AccountingStorageTRES"))
    named = {f"gres/gpu:{kind}" for text in weights.values() for kind in parse_weights(text).typed}
    missing = sorted(named - tracked)
    return judge(
        "typed-tres",
        not missing,
        f"weighed, not accounted: {', '.join(missing)}" if missing else "all weighed TRES",
        f"slurm.conf: AccountingStorageTRES=...,{','.join(missing)}",
        Status.WARN,
    )


def enforced(conf: Conf) -> Finding:
    """Limits that are not enforced limit nothing, shares or not."""
    if accounting(conf).status is Status.NA:
        return Finding("limits-enforced", Status.NA, "no accounting storage")
    found = words(conf, "AccountingStorageEnforce")
    return judge(
        "limits-enforced",
        "limits" in found or "safe" in found or "all" in found,
        ",".join(found) or "none",
        "QOS and association limits bind nobody; where you want them, slurm.conf:"
        " AccountingStorageEnforce=associations,limits,qos",
        Status.WARN,
    )


def gpu_limits(wanted: Plan) -> Finding:
    """QOS and association limits in GPUs that shares pass by."""
    left = [change.told for change in wanted.changes]
    text = f"{len(left)} pass shares by: {'; '.join(left[:4])}" if left else "all hold for shares"
    return judge(
        "gpu-limits", not left, text, "coloc limits, then coloc limits --apply", Status.WARN
    )


def suspending(shape: ClusterShape, shared: Collection[str]) -> Finding:
    """A suspended job keeps its GPU memory: partitions that suspend are not shared."""
    found = sorted(part.name for part in shape.partitions if suspends(part) and part.name in shared)
    return judge(
        "preempt-mode",
        not found,
        f"PreemptMode SUSPEND or GANG: {', '.join(found)}"
        if found
        else "no shared partition suspends",
        "their jobs get whole GPUs; with PreemptMode=REQUEUE, CANCEL or OFF they can share",
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
    return judge(
        "shard-counts",
        not wrong,
        "; ".join(wrong) or each,
        "count = GPUs x floor((usable MiB - pool.margin_mib) / pool.shard_mib)",
    )


def shard_types(conf: Conf, lines: Sequence[str]) -> Finding:
    """Shards without a type beside GPUs with one, under two controllers: a backup slurmctld of
    24.11 that takes over sees ``shard:a100:0`` then and drains the node. ``lines``: slurm.conf's,
    since scontrol shows the shards with the GPUs' type in any case; empty: it cannot be read."""
    name, controllers = "shard-types", len(values(conf, "SlurmctldHost"))
    if controllers < 2:
        return Finding(name, Status.NA, "one controller")
    if not lines:
        return Finding(name, Status.NA, f"{controllers} controllers; slurm.conf cannot be read")
    wrong = {}
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        node = re.match(r"NodeName=(\S+)", line, re.IGNORECASE)
        gres = re.search(r"\sGres=\"?([^\s\"]+)", line, re.IGNORECASE)
        items = parse_gres(gres[1]) if node and gres else ()
        kinds = [
            one.type
            for one in items
            if one.name == "gpu" and one.type and slice_of(one.type) is None
        ]
        bare = [one for one in items if one.name == "shard" and not one.type]
        if node and kinds and bare:
            each = bare[0].count // len(kinds)
            wrong[node[1]] = ",".join(f"shard:{kind}:{each}" for kind in kinds)
    told = "; ".join(f"NodeName={node} Gres=...,{gres}" for node, gres in wrong.items())
    return judge(
        name,
        not wrong,
        f"shards without a type: {', '.join(wrong)}; when the backup slurmctld takes over, 24.11"
        " finds none there and drains the nodes"
        if wrong
        else f"{controllers} controllers, shards as typed as their GPUs",
        f"slurm.conf: {told}",
        Status.WARN,
    )


def _largest(gpu_type: str | None) -> int:
    """Memory (MiB) of the largest known GPU whose name begins like ``gpu_type``; 0: not known."""
    if not gpu_type:
        return 0
    base = gpu_type.lower().split("-")[0].split("_")[0]
    sizes = [kind.total_mib for name, kind in GPU_TYPES.items() if name.split("-")[0] == base]
    return max(sizes, default=0)
