# SPDX-License-Identifier: Apache-2.0
"""Checks of `coloc doctor` for accounting, billing and limits of shards, pure."""

from collections.abc import Mapping

from slurm_coloc.admin.rules.finding import Finding, Status, judge
from slurm_coloc.admin.rules.limit_plan import Plan
from slurm_coloc.admin.rules.slurm_conf import Conf, value, words
from slurm_coloc.core.slurm.billing import good, kinds_of, off_by, parse_weights, proposed
from slurm_coloc.core.slurm.cluster import ClusterShape
from slurm_coloc.core.slurm.releases import COMMENTS, Release, shown

SHOWN = 4  # limits that shares pass by


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


def summaries(conf: Conf, release: Release) -> Finding:
    """What metrics.job_summaries needs: slurmdbd, and a sacctmgr that writes what it is given."""
    storage = value(conf, "AccountingStorageType")
    off = "or coloc.toml: [metrics] job_summaries = false"
    if "slurmdbd" not in storage:
        todo = f"slurm.conf: AccountingStorageType=accounting_storage/slurmdbd, {off}"
        return Finding("job-summaries", Status.FAIL, f"{storage or 'no accounting'}: none", todo)
    text = f"Slurm {shown(release)}: from {shown(COMMENTS.first)} on {COMMENTS.what}"
    todo = f"a newer Slurm, {off}"
    return judge("job-summaries", COMMENTS.holds(release), text, todo)


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
        "QOS and association limits are not enforced; where you want them, slurm.conf:"
        " AccountingStorageEnforce=associations,limits,qos",
        Status.WARN,
    )


def gpu_limits(wanted: Plan) -> Finding:
    """QOS and association limits in GPUs that shares pass by."""
    left = [change.text for change in wanted.changes]
    text = "all count shares"
    if left:
        text = f"{len(left)} do not count shares: {'; '.join(left[:SHOWN])}"
    return judge(
        "gpu-limits", not left, text, "coloc limits, then coloc limits --apply", Status.WARN
    )
