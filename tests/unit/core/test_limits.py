# SPDX-License-Identifier: Apache-2.0
"""Limits in GPUs: what they say of a share, and what keeps their meaning."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from slurm_coloc.admin.rules.limit_plan import command, plan
from slurm_coloc.admin.rules.limit_record import Applied, applied, take_back
from slurm_coloc.core.decide.decision import Action, Decision, Reason
from slurm_coloc.core.decide.request import JobRequest
from slurm_coloc.core.slurm.billing import parse_weights
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeShape, PartitionShape
from slurm_coloc.core.slurm.pending import pending_text
from slurm_coloc.core.slurm.qos_limits import (
    LimitOwner,
    SiteLimits,
    limit_owners,
    limits_behind,
    parse_counts,
    within,
)

ADA = 1000
SHAPE = ClusterShape(
    "c",
    (24, 11, 5),
    (NodeShape("g1", ("main",), (), "a100", 4, 156),),
    (PartitionShape("main", default=True),),
)
ONE_PRICE = {"main": parse_weights("GRES/gpu=39,GRES/shard=1")}
WITH_CPUS = {"main": parse_weights("CPU=1,GRES/gpu=39,GRES/shard=1")}
SHARE = Decision(Action.COLLOCATE, Reason.FITS, 10, None, 39)
ROOT = LimitOwner(account="root")
PHYSICS = LimitOwner(account="physics", parent="root")
JOB = JobRequest(ADA, account="physics", tres_per_node="gres/gpu:1")

Limits = Mapping[str, Mapping[str, int]]


def qos(limits: Limits, name: str = "q", *flags: str) -> LimitOwner:
    return LimitOwner(qos=name, limits=limits, flags=frozenset(flags))


def site(
    *holders: LimitOwner, weights: Mapping[str, object] = ONE_PRICE, default: str = "normal"
) -> SiteLimits:
    return SiteLimits(
        {one.qos: one for one in holders if one.qos},
        tuple(one for one in holders if not one.qos),
        weights,  # type: ignore[arg-type]
        default,
    )


def decided(found: SiteLimits, request: JobRequest = JOB, shape: ClusterShape = SHAPE) -> Decision:
    return within(SHARE, request, shape, found)


def test_counts_keep_types_and_drop_the_rest() -> None:
    assert parse_counts("cpu=4,mem=2G,gres/gpu=2,gres/gpu:a100=1,billing=78") == {
        "gres/gpu": 2,
        "gres/gpu:a100": 1,
        "billing": 78,
    }
    assert parse_counts("") == {}


# what a limit says of a share


def test_a_gpu_jobs_only_qos_gets_whole_gpus() -> None:
    found = decided(site(qos({"MinTRESPerJob": {"gres/gpu": 1}})), replace(JOB, qos="q"))
    assert (found.action, found.reason) == (Action.EXCLUSIVE, Reason.LIMIT)
    assert "QOS q: at least gres/gpu=1 for a job, 0 asked" in found.why


def test_its_equivalent_in_billing_lets_shares_in() -> None:
    found = decided(site(qos({"MinTRESPerJob": {"billing": 1}})), replace(JOB, qos="q"))
    assert found is SHARE


@pytest.mark.parametrize(
    "limits",
    [
        {"MaxTRESPerJob": {"gres/shard": 5}},
        {"MaxTRESPerUser": {"gres/shard": 9, "gres/gpu": 4}},
        {"GrpTRES": {"gres/shard": 0}},
    ],
)
def test_a_limit_that_no_share_of_this_size_meets_means_a_whole_gpu(limits: Limits) -> None:
    assert decided(site(qos(limits, "normal"))).reason is Reason.LIMIT


@pytest.mark.parametrize(
    "limits",
    [
        {"MaxTRESPerJob": {"gres/gpu": 0}},  # the share may run: its recovery may not, and pends
        {"MaxTRESPerJob": {"gres/shard": 10}},
        {"MaxTRESPerUser": {"billing": 10}},
        {"MaxTRESMinsPerJob": {"gres/shard": 1}},  # minutes are Slurm's to judge
        {"MinTRESPerJob": {"gres/gpu": 2}},  # broken either way: Slurm says so
        {"GrpTRES": {"gres/shard": 5, "gres/gpu": 0}},
    ],
)
def test_else_the_decision_stands(limits: Limits) -> None:
    assert decided(site(qos(limits, "normal"))) is SHARE


def test_a_users_association_of_another_partition_does_not_count() -> None:
    few = {"MaxTRESPerJob": {"gres/shard": 5}}
    elsewhere = LimitOwner(account="physics", user="ada", partition="short", uid=ADA, limits=few)
    assert decided(site(ROOT, PHYSICS, elsewhere)) is SHARE
    here = replace(elsewhere, partition="main")
    assert decided(site(ROOT, PHYSICS, here)).reason is Reason.LIMIT
    # Slurm takes the one of the partition, not both.
    everywhere = replace(elsewhere, partition="")
    roomy = replace(here, limits={"MaxTRESPerJob": {"gres/shard": 50}})
    assert decided(site(ROOT, PHYSICS, everywhere, roomy)) is SHARE


def test_the_partitions_qos_goes_before_the_jobs_unless_told_otherwise() -> None:
    shape = replace(SHAPE, partitions=(PartitionShape("main", default=True, qos="P"),))  # any case
    strict = {"MaxTRESPerJob": {"gres/shard": 5}}
    wide = {"MaxTRESPerJob": {"gres/shard": 50}}
    request = replace(JOB, qos="q")
    assert decided(site(qos(wide, "p"), qos(strict)), request, shape) is SHARE
    assert decided(site(qos(strict, "p"), qos(wide)), request, shape).reason is Reason.LIMIT
    over = site(qos(strict, "p"), qos(wide, "q", "OverPartQOS"))
    assert decided(over, request, shape) is SHARE


def test_accounts_and_users_limits_count_up_to_the_root() -> None:
    user = LimitOwner(
        account="physics", user="ada", uid=ADA, limits={"MaxTRESPerJob": {"gres/shard": 9}}
    )
    assert decided(site(ROOT, PHYSICS, user)).reason is Reason.LIMIT
    assert decided(site(ROOT, PHYSICS, replace(user, uid=7))) is SHARE
    root = replace(ROOT, limits={"GrpTRES": {"gres/shard": 9}})
    wide = replace(PHYSICS, limits={"GrpTRES": {"gres/shard": 90}})
    assert decided(site(root, wide)).reason is Reason.LIMIT


def test_the_default_qos_is_the_nearest_one_of_the_chain() -> None:
    strict = qos({"MinTRESPerJob": {"gres/gpu": 1}}, "gpuonly")
    assert decided(site(strict, ROOT, replace(PHYSICS, default_qos="gpuonly"))).reason is (
        Reason.LIMIT
    )
    assert decided(site(strict, ROOT, PHYSICS)) is SHARE


def test_a_loop_of_accounts_ends() -> None:
    ours = replace(PHYSICS, parent="other")
    assert limit_owners(
        JOB, "main", SHAPE, site(ours, LimitOwner(account="other", parent="physics"))
    )


def test_shares_of_several_gpus_count_together() -> None:
    both = replace(SHARE, gpus=2)
    request = replace(JOB, tres_per_node="gres/gpu:2")
    for limit, reason in ((19, Reason.LIMIT), (20, Reason.FITS)):
        found = site(qos({"MaxTRESPerJob": {"gres/shard": limit}}, "normal"))
        assert within(both, request, SHAPE, found).reason is reason


# the plan


def lines(found: SiteLimits) -> list[str]:
    return [" ".join(command(one, "c")[2:]) for one in plan(found, SHAPE).changes]


def test_one_price_counts_whole_gpus_and_shares_together() -> None:
    found = site(
        qos({"MaxTRESPerUser": {"gres/gpu": 2}, "MinTRESPerJob": {"gres/gpu": 1}}),
        replace(PHYSICS, limits={"GrpTRESMins": {"gres/gpu": 60}}),
        LimitOwner(account="physics", user="ada", limits={"MaxTRESPerNode": {"gres/gpu": 1}}),
    )
    assert lines(found) == [
        "qos where name=q set MaxTRESPerUser=billing=78",
        "qos where name=q set MinTRESPerJob=gres/gpu=-1,billing=1",
        "account where name=physics cluster=c set GrpTRESMins=billing=2340",
        "user where name=ada account=physics cluster=c set MaxTRESPerNode=gres/shard=39",
    ]


def test_with_cpus_in_the_price_shares_are_counted_beside() -> None:
    limits = {"MaxTRESPerUser": {"gres/gpu": 2}, "MinTRESPerJob": {"gres/gpu": 1}}
    found = site(qos(limits), weights=WITH_CPUS)
    assert lines(found) == ["qos where name=q set MaxTRESPerUser=gres/shard=78"]
    assert any("whole GPUs (reason limit)" in note for note in plan(found, SHAPE).notes)


def test_what_a_site_set_itself_stays_and_a_difference_is_told() -> None:
    found = site(qos({"MaxTRESPerUser": {"gres/gpu": 2, "billing": 50}}))
    assert not plan(found, SHAPE).changes
    assert any("the rule would say billing=78" in note for note in plan(found, SHAPE).notes)


@pytest.mark.parametrize("own", [{"billing": 100}, {"gres/shard": 5}])
def test_a_minimum_that_the_site_set_itself_is_not_lowered(own: Mapping[str, int]) -> None:
    found = site(qos({"MinTRESPerJob": {"gres/gpu": 1, **own}}))
    assert not plan(found, SHAPE).changes
    assert any("whole GPUs (reason limit)" in note for note in plan(found, SHAPE).notes)


def test_typed_limits_are_told_not_guessed() -> None:
    found = plan(site(qos({"GrpTRES": {"gres/gpu:a100": 1}})), SHAPE)
    assert not found.changes and "no counterpart" in found.notes[0]


def test_no_shards_no_plan() -> None:
    bare = replace(SHAPE, nodes=(replace(SHAPE.nodes[0], shards=0),))
    assert not plan(site(qos({"GrpTRES": {"gres/gpu": 1}})), bare).changes


@pytest.mark.parametrize("weights", [ONE_PRICE, WITH_CPUS])
def test_applied_twice_is_applied_once_and_undone_is_as_before(
    weights: Mapping[str, object],
) -> None:
    before = {"MaxTRESPerUser": {"gres/gpu": 2}, "MinTRESPerJob": {"gres/gpu": 1}}
    found = site(qos(before), weights=weights)

    def apply(limits: Limits, changes: Mapping[str, int], option: str) -> Limits:
        merged = {**limits[option], **changes}
        return {**limits, option: {k: v for k, v in merged.items() if v >= 0}}

    after: Limits = before
    record: list[Applied] = []
    for change in plan(found, SHAPE).changes:
        record.append(applied(change))
        after = apply(after, change.new, change.option.name)
    assert after != before
    done = site(qos(after), weights=weights)
    assert not plan(done, SHAPE).changes
    for change in take_back(record, done, plan(done, SHAPE)).changes:
        after = apply(after, change.new, change.option.name)
    assert after == before


# why a job waits


@pytest.mark.parametrize(
    ("reason", "option", "tres"),
    [
        ("QOSMaxGRESPerUser", "MaxTRESPerUser", "gres/gpu"),
        ("QOSMaxBillingPerUser", "MaxTRESPerUser", "billing"),
        ("QOSMaxGRESPerJob", "MaxTRESPerJob", "gres/gpu"),
        ("QOSMaxGRESPerAccount", "MaxTRESPerAccount", "gres/gpu"),
        ("QOSGrpGRES", "GrpTRES", "gres/shard"),
        ("QOSGrpGRESMinutes", "GrpTRESMins", "gres/gpu"),
        ("QOSGrpGRESRunMinutes", "GrpTRESRunMins", "gres/gpu"),
        ("QOSMinGRES", "MinTRESPerJob", "gres/gpu"),
        ("QOSMinBilling", "MinTRESPerJob", "billing"),
    ],
)
def test_the_limit_behind_a_reason_is_told(reason: str, option: str, tres: str) -> None:
    every = {name: {tres: 3} for name in ("GrpTRES", "GrpTRESMins", "GrpTRESRunMins",
        "MaxTRESPerJob", "MaxTRESPerUser", "MaxTRESPerAccount", "MaxTRESPerNode",
        "MinTRESPerJob")}  # fmt: skip
    every[option] = {tres: 7}
    found = limits_behind(reason, [qos(every), replace(PHYSICS, limits=every)])
    assert len(found) == 1 and f"{tres}=7" in found[0] and found[0].startswith("QOS q allows")
    assert "limit" in pending_text(reason) or "never start" in pending_text(reason)


def test_an_associations_reason_names_the_association() -> None:
    limited = replace(PHYSICS, limits={"GrpTRES": {"gres/gpu": 1}})
    found = limits_behind("AssocGrpGRES", [qos({"GrpTRES": {"gres/gpu": 1}}), limited])
    assert found == ["account physics allows all its jobs together at most gres/gpu=1"]
    assert limits_behind("Resources", [limited]) == []
