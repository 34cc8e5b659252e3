# SPDX-License-Identifier: Apache-2.0
"""Placing keeps to Slurm's order: a limit of a QOS or an association, and the partitions' tiers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.errors import SlurmError
from slurm_coloc.lab import accounting
from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import desk, until
from tests.cluster.rules import told
from tests.cluster.test_steered import gpu, shares, steered, submit, wide

Make = Callable[..., Lab]
STEERED = pytest.param(
    "steered", marks=pytest.mark.needs_slurm("24.11", "does not change a waiting job's shards")
)


def no_accounting() -> str:
    """Why there can be no limits here; "" where there can."""
    try:
        accounting.find_programs()
    except SlurmError as err:
        return err.message
    return ""


def limited(make_lab: Make, mode: str) -> Lab:
    """A lab with slurmdbd; its first user has a QOS for one job at a time."""
    if mode == "steered":
        lab = steered(make_lab, accounting=True)
    else:
        lab = make_lab(accounting=True, users=2)
    lab.run(["sacctmgr", "-iQ", "add", "qos", "one", "MaxJobsPU=1"])
    for user in lab.users:
        lab.run(["sacctmgr", "-iQ", "modify", "user", user, "set", "qos+=one"])
    return lab


@pytest.mark.skipif(bool(no_accounting()), reason=no_accounting() or "-")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mode", ["native", STEERED])
def test_a_job_at_a_limit_holds_up_nobody(make_lab: Make, mode: str) -> None:
    """It holds no GPU's place, others pass it as Slurm lets them, and it goes when it may."""
    lab = limited(make_lab, mode)
    me, other = desk(lab, 300), desk(lab, 305, user=1)
    by_user = ["sacctmgr", "-iQ", "modify", "user", me.user or "", "set"]
    ways = (
        (("--qos=one",), [], "QOSMaxJobsPerUserLimit"),
        ((), ["MaxJobs=1"], "AssocMaxJobsLimit"),
    )
    for options, setting, reason in ways:
        if setting:
            lab.run([*by_user, *setting])
        runs = submit(me, *options)
        lab.wait(runs, "RUNNING")
        limited_one = submit(me, *options)
        until(lambda: reason == lab.job(limited_one)["Reason"], 30, reason)  # noqa: B023
        # A job of another user behind it, for a whole GPU and then for a share.
        whole = wide(lab, "--time=30")
        lab.wait(whole, "RUNNING", 30)
        beside = submit(other)
        lab.wait(beside, "RUNNING", 30)
        assert lab.job(limited_one)["JobState"] == "PENDING"
        if mode == "steered":
            assert gpu(lab, beside) == gpu(lab, runs) != ""
            assert 0 in shares(lab), "the whole GPU has no share"
        lab.run(["scancel", str(runs)])
        job = lab.wait(limited_one, "RUNNING", 60)
        assert job["JobState"] == "RUNNING"
        if mode == "steered":  # its pin of the beginning may have been the GPU that is taken
            until(lambda: gpu(lab, limited_one) in ("", gpu(lab, beside)), 20)  # noqa: B023
        lab.clear()
    lab.run([*by_user, "MaxJobs=-1"])


TIERS = (
    "PartitionName=urgent Nodes=ALL PriorityTier=10 MaxTime=1-00:00:00 DefaultTime=01:00:00"
    " DefMemPerCPU=1000 PriorityJobFactor=1 State=UP"
)


@pytest.mark.needs_slurm("24.11", "does not change a waiting job's shards")
@pytest.mark.timeout(300)
def test_a_partitions_tier_comes_before_priority(make_lab: Make) -> None:
    one_gpu = "1xa100-40gb"
    lab = steered(make_lab, {"whole_first": True}, machine=one_gpu, slurm_conf_extra=TIERS)
    me = desk(lab, 300)
    runs = submit(me)
    lab.wait(runs, "RUNNING")
    first = wide(lab, "--partition=main")
    lab.run(["scontrol", "update", f"JobId={first}", "Priority=900000"])
    until(lambda: lab.job(first)["Reason"] == "Resources", 20, "it waits for the GPU")
    # In the same partition it waits behind that one; in the higher one it comes before it.
    behind = submit(me, "--time=2:00:00")
    until(lambda: "a whole GPU there" in told(me, behind), 20, "it is told for whom it waits")
    urgent = submit(me, "--partition=urgent", "--time=2:00:00")
    lab.wait(urgent, "RUNNING", 30)
    assert gpu(lab, urgent) == "n1/a100-0"
    assert lab.job(behind)["JobState"] == lab.job(first)["JobState"] == "PENDING"
    second = wide(lab, "--partition=urgent")
    until(lambda: order(lab, behind)[:2] == [second, first], 30, "the higher tier is first")
    for job in (runs, urgent):
        lab.run(["scancel", str(job)])
    lab.wait(second, "RUNNING", 30)
    assert lab.job(first)["JobState"] == "PENDING"


def order(lab: Lab, other: int) -> list[int]:
    """The queue of the last recorded look; ``other`` is made to be looked at anew."""
    lab.run(["scontrol", "update", f"JobId={other}", "StartTime=now"])
    paths: list[Path] = sorted((lab.dir / "coloc/state/placement").iterdir())
    found: dict[str, Any] = json.loads(paths[-1].read_text())
    return [job["job_id"] for job in found["snapshot"]["waiting"]]
