# SPDX-License-Identifier: Apache-2.0
"""The checks of coloc doctor, on recorded configurations of real clusters and on broken ones."""

from pathlib import Path

import pytest

from slurm_coloc.adapters.commands.parse import parse_config
from slurm_coloc.core import checks
from slurm_coloc.core.checks import Status
from slurm_coloc.core.cluster import ClusterShape, NodeShape

RECORDED = Path(__file__).resolve().parents[2] / "contract" / "slurm"


def _recorded(release: str) -> dict[str, str]:
    return parse_config((RECORDED / release / "config.txt").read_text())


@pytest.mark.parametrize(
    ("release", "bad"),
    [
        # This recorded lab runs without our hook, so job_submit is missing on purpose.
        ("22.05", {"slurm-release": "warn", "job-submit": "fail", "job-file-append": "warn"}),
        ("24.11", {"job-submit": "fail", "job-file-append": "warn"}),
    ],
)
def test_recorded(release: str, bad: dict[str, str]) -> None:
    found = {one.check: one for one in (check(_recorded(release)) for check in checks.SLURM_CHECKS)}
    wrong = {k: str(f.status) for k, f in found.items() if f.status in (Status.WARN, Status.FAIL)}
    assert wrong == bad
    assert found["accounting-tres"].status is Status.NA
    for one in found.values():
        assert bool(one.todo) == (one.status in (Status.WARN, Status.FAIL)), one


@pytest.mark.parametrize(
    ("check", "conf", "status"),
    [
        (checks.release, {"SLURM_VERSION": "21.08.8"}, Status.FAIL),
        (checks.release, {"SLURM_VERSION": "23.11.4"}, Status.WARN),
        (checks.release, {"SLURM_VERSION": "23.11.5"}, Status.OK),
        (checks.release, {"SLURM_VERSION": "25.11.0-0rc1"}, Status.OK),
        (checks.gres_types, {"GresTypes": "gpu"}, Status.FAIL),
        (checks.gres_types, {"GresTypes": "shard, GPU,mps"}, Status.OK),
        (checks.select_type, {"SelectType": "select/linear"}, Status.FAIL),
        (checks.job_submit, {"JobSubmitPlugins": "throttle,lua"}, Status.OK),
        (checks.job_submit, {}, Status.FAIL),
        (checks.job_requeue, {"JobRequeue": "0"}, Status.WARN),
        (checks.min_job_age, {"MinJobAge": "59 sec"}, Status.FAIL),
        (checks.min_job_age, {"MinJobAge": "60 sec"}, Status.OK),
        (checks.min_job_age, {}, Status.FAIL),
        (checks.priority_type, {"PriorityType": "priority/basic"}, Status.WARN),
        (
            checks.accounting,
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
    assert checks.values(conf, "Prolog") == ["/a", "/b"]
    assert checks.values(conf, "Epilog") == []


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
    assert checks.shard_counts(_shape(node), shard_mib).status is status


def test_billing() -> None:
    conf = {"AccountingStorageType": "accounting_storage/slurmdbd"}
    weights = {"main": "CPU=1.0,GRES/gpu=39.0,GRES/shard=1.0", "old": "CPU=1.0"}
    assert checks.billing(conf, weights, {"main"}).status is Status.OK
    assert checks.billing(conf, weights, {"main", "old"}).status is Status.WARN
    assert checks.billing({}, weights, {"old"}).status is Status.NA
