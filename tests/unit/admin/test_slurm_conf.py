# SPDX-License-Identifier: Apache-2.0
"""The checks of coloc doctor, on recorded configurations of real clusters and on broken ones."""

from pathlib import Path

import pytest

from slurm_coloc.adapters import probe
from slurm_coloc.adapters.slurm.commands.parse import parse_config
from slurm_coloc.admin.doctor import slurm as doctor_slurm
from slurm_coloc.admin.rules import accounting, releases, shard_checks, slurm_conf
from slurm_coloc.admin.rules.finding import Status
from slurm_coloc.admin.rules.limit_plan import plan
from slurm_coloc.config import Config
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeShape, PartitionShape
from slurm_coloc.core.slurm.qos_limits import LimitOwner, SiteLimits

RECORDED = Path(__file__).resolve().parents[2] / "contract" / "slurm"


def _recorded(release: str) -> dict[str, str]:
    return parse_config((RECORDED / release / "config.txt").read_text())


@pytest.mark.parametrize(
    ("release", "bad"),
    [
        # This recorded lab runs without our hook, so job_submit is missing on purpose.
        ("22.05", {"slurm-release": "warn", "job-submit": "fail"}),
        ("24.11", {"slurm-backfill": "warn", "job-submit": "fail"}),
        ("26.05", {"job-submit": "fail"}),
    ],
)
def test_recorded(release: str, bad: dict[str, str]) -> None:
    every = (*releases.RELEASE_CHECKS, *slurm_conf.SETTINGS, accounting.accounting)
    found = {one.check: one for one in (check(_recorded(release)) for check in every)}
    wrong = {k: str(f.status) for k, f in found.items() if f.status in (Status.WARN, Status.FAIL)}
    assert wrong == bad
    assert found["accounting-tres"].status is Status.NA
    for one in found.values():
        if one.status is not Status.NA:  # it may say what would change that
            assert bool(one.todo) == (one.status is not Status.OK), one


@pytest.mark.parametrize(
    ("check", "conf", "status"),
    [
        (releases.release, {"SLURM_VERSION": "21.08.8"}, Status.FAIL),
        (releases.release, {"SLURM_VERSION": "23.11.4"}, Status.WARN),
        (releases.release, {"SLURM_VERSION": "23.11.5"}, Status.OK),
        (releases.release, {"SLURM_VERSION": "25.11.0-0rc1"}, Status.OK),
        (releases.backfill, {"SLURM_VERSION": "23.11.4"}, Status.OK),
        (releases.backfill, {"SLURM_VERSION": "23.11.5"}, Status.WARN),
        (releases.backfill, {"SLURM_VERSION": "25.11.4"}, Status.OK),
        (releases.backfill, {"SLURM_VERSION": "26.05.0"}, Status.OK),
        (slurm_conf.gres_types, {"GresTypes": "gpu"}, Status.FAIL),
        (slurm_conf.gres_types, {"GresTypes": "shard, GPU,mps"}, Status.OK),
        (slurm_conf.select_type, {"SelectType": "select/linear"}, Status.FAIL),
        (releases.several_gpus, {"SelectTypeParameters": "CR_CORE"}, Status.NA),
        (
            releases.several_gpus,
            {
                "SelectTypeParameters": "CR_CORE,MULTIPLE_SHARING_GRES_PJ",
                "SLURM_VERSION": "26.05.5",
            },
            Status.OK,
        ),
        (
            releases.several_gpus,
            {
                "SelectTypeParameters": "MULTIPLE_SHARING_GRES_PJ",
                "SLURM_VERSION": "23.11.10",
            },
            Status.WARN,
        ),
        (
            releases.several_gpus,  # --spread-job
            {
                "SelectTypeParameters": "MULTIPLE_SHARING_GRES_PJ",
                "SLURM_VERSION": "24.11.5",
            },
            Status.WARN,
        ),
        (slurm_conf.job_submit, {"JobSubmitPlugins": "throttle,lua"}, Status.OK),
        (slurm_conf.job_submit, {}, Status.FAIL),
        (slurm_conf.job_requeue, {"JobRequeue": "0"}, Status.WARN),
        (slurm_conf.file_append, {"JobFileAppend": "0"}, Status.NA),
        (slurm_conf.min_job_age, {"MinJobAge": "59 sec"}, Status.FAIL),
        (slurm_conf.min_job_age, {"MinJobAge": "60 sec"}, Status.OK),
        (slurm_conf.min_job_age, {}, Status.FAIL),
        (slurm_conf.priority_type, {"PriorityType": "priority/basic"}, Status.WARN),
        (
            accounting.accounting,
            {
                "AccountingStorageType": "accounting_storage/slurmdbd",
                "AccountingStorageTRES": "cpu",
            },
            Status.WARN,
        ),
    ],
)
def test_one_setting(check: object, conf: dict[str, str], status: Status) -> None:
    assert callable(check)
    assert check(conf).status is status


def test_several_prologs() -> None:
    conf = {"Prolog[0]": "/a", "Prolog[1]": "/b", "PrologFlags": "Alloc", "Epilog": "(null)"}
    assert slurm_conf.values(conf, "Prolog") == ["/a", "/b"]
    assert slurm_conf.values(conf, "Epilog") == []


def _shape(*nodes: NodeShape) -> ClusterShape:
    return ClusterShape("c", (24, 11, 5), nodes)


@pytest.mark.parametrize(
    ("gpu_type", "gpus", "shards", "shard_mib", "status"),
    [
        ("a100", 2, 78, 1024, Status.OK),
        ("a100", 2, 162, 1024, Status.FAIL),
        ("a100", 2, 79, 1024, Status.FAIL),
        ("a100", 2, 78, 4096, Status.FAIL),
        ("homemade", 2, 300, 1024, Status.OK),
        (None, 2, 300, 1024, Status.OK),
        ("a100", 2, 0, 1024, Status.FAIL),
    ],
)
def test_shard_counts(
    gpu_type: str | None, gpus: int, shards: int, shard_mib: int, status: Status
) -> None:
    node = NodeShape("n1", ("main",), (), gpu_type, gpus, shards)
    assert shard_checks.shard_counts(_shape(node), shard_mib).status is status


@pytest.mark.parametrize(("mode", "status"), [("observe", Status.NA), ("on", Status.FAIL)])
def test_who_only_observes_needs_no_shards(
    mode: str, status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`coloc doctor` after the first step of the guide, when nothing is amiss."""
    monkeypatch.setattr(probe, "plugstack", lambda conf: [])
    node = NodeShape("n1", ("main",), (), "a100", 2, 0)
    conf = {"GresTypes": "gpu", "SLURM_CONF": "/none"}
    slurm = doctor_slurm.Slurm(conf, _shape(node), {}, "no slurmdbd", ())
    config = Config.model_validate({"mode": {"default": mode}})
    found = {one.check: one.status for one in doctor_slurm.checks(config, slurm)}
    assert (found["gres-types"], found["shard-counts"]) == (status, status)


TWO_CONTROLLERS = {"SlurmctldHost[0]": "ctl1", "SlurmctldHost[1]": "ctl2"}


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (["NodeName=g1 CPUs=32 Gres=gpu:a100:4,shard:156 State=UNKNOWN"], Status.WARN),
        (["nodename=g[1-2] \\", 'gres="shard:156,gpu:a100:4"'], Status.WARN),
        (["NodeName=g1 Gres=gpu:a100:4,shard:a100:156"], Status.OK),
        (["NodeName=g1 Gres=gpu:4,shard:156", "NodeName=c1 CPUs=4"], Status.OK),
        ([], Status.NA),
    ],
)
def test_shards_without_a_type_under_two_controllers(lines: list[str], status: Status) -> None:
    found = shard_checks.shard_types(TWO_CONTROLLERS, lines)
    assert found.status is status
    if status is Status.WARN:
        assert "shard:a100:156" in found.todo
    assert shard_checks.shard_types({"SlurmctldHost[0]": "ctl1"}, lines).status is Status.NA


DBD = {"AccountingStorageType": "accounting_storage/slurmdbd"}


def test_billing() -> None:
    two = ("main", "old")
    shape = ClusterShape("c", (24, 11, 5), (NodeShape("g", two, (), "a100", 2, 78),))
    weights = {"main": "CPU=1.0,GRES/gpu=39.0,GRES/shard=1.0", "old": "CPU=1.0"}
    assert accounting.billing(DBD, shape, weights, {"main"}).status is Status.OK
    found = accounting.billing(DBD, shape, weights, {"main", "old"})
    assert found.status is Status.WARN and "old: shares are billed no GPU" in found.found
    assert "TRESBillingWeights=CPU=1.0,GRES/gpu=39,GRES/shard=1" in found.todo
    assert accounting.billing({}, shape, weights, {"old"}).status is Status.NA


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ("GRES/gpu=39,GRES/shard=2", "dearer (78) than it (39)"),
        ("GRES/gpu=78,GRES/shard=1", "cheaper"),
    ],
)
def test_shares_dearer_or_cheaper_than_their_gpu(weights: str, said: str) -> None:
    shape = ClusterShape("c", (24, 11, 5), (NodeShape("g", ("main",), (), "a100", 2, 78),))
    assert said in accounting.billing(DBD, shape, {"main": weights}, {"main"}).found


def test_a_weighed_type_must_be_accounted() -> None:
    weights = {"main": "GRES/gpu:a100=39,GRES/shard=1"}
    bare = {"AccountingStorageTRES": "gres/gpu,gres/shard"}
    assert accounting.typed_tres(bare, weights).status is Status.WARN
    full = {"AccountingStorageTRES": "gres/gpu,gres/gpu:a100,gres/shard"}
    assert accounting.typed_tres(full, weights).status is Status.OK


@pytest.mark.parametrize(
    ("said", "status"),
    [("associations", Status.WARN), ("associations,limits,qos", Status.OK), ("safe", Status.OK)],
)
def test_limits_bind_only_where_they_are_enforced(said: str, status: Status) -> None:
    assert accounting.enforced({**DBD, "AccountingStorageEnforce": said}).status is status


def test_limits_in_gpus_that_shares_pass_by() -> None:
    shape = ClusterShape(
        "c", (24, 11, 5), (NodeShape("g", ("main",), (), "a100", 2, 78),), (PartitionShape("main"),)
    )
    holder = LimitOwner(qos="q", limits={"MaxTRESPerUser": {"gres/gpu": 1}})
    found = accounting.gpu_limits(plan(SiteLimits({"q": holder}), shape))
    assert found.status is Status.WARN and "QOS q, MaxTRESPerUser: gres/shard=39" in found.found
    assert accounting.gpu_limits(plan(SiteLimits(), shape)).status is Status.OK


@pytest.mark.parametrize(
    ("storage", "release", "status"),
    [
        ("accounting_storage/slurmdbd", (24, 11), Status.OK),
        ("accounting_storage/slurmdbd", (22, 5), Status.FAIL),
        ("accounting_storage/none", (24, 11), Status.FAIL),
        ("", (24, 11), Status.FAIL),
    ],
)
def test_what_job_summaries_need(storage: str, release: tuple[int, int], status: Status) -> None:
    found = accounting.summaries({"AccountingStorageType": storage}, release)
    assert found.status is status
