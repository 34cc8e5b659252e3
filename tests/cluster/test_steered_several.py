# SPDX-License-Identifier: Apache-2.0
"""Steered placement where jobs of several GPUs share too (MULTIPLE_SHARING_GRES_PJ): a share of one
GPU is asked for per task and pinned all the same; several GPUs are Slurm's choice."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import Desk, desk, until
from tests.cluster.rules import QUIET, told
from tests.cluster.test_steered import shares, steered

Make = Callable[..., Lab]
pytestmark = [
    pytest.mark.needs_slurm("24.11", "no shards of several GPUs in one job"),
    pytest.mark.timeout(240),
]
FOUR = "dgx-station-a100"


def lab_of_four(make_lab: Make, share_with: str) -> Lab:
    tables: dict[str, Any] = {"sharing": {"with": share_with}}
    return steered(make_lab, tables=tables, machine=FOUR, multi_gpu=True)


def asks(lab: Lab, job: int) -> str:
    """What a job asks for, per task or per node."""
    row = lab.job(job)
    return row.get("TresPerTask", "") + row.get("TresPerNode", "")


def trains(lab: Lab, job: int) -> bool:
    return "step " in lab.output(job)


def submit(me: Desk, *args: str, pattern: str = r"shard", wrap: str = "sleep 300") -> int:
    """A job that asks for this. Where an estimate took too long it asks for a whole GPU: then
    another one."""

    def shared() -> int:
        job = me.submit(*QUIET, *args, wrap=wrap)
        if re.search(pattern, asks(me.lab, job)):
            return job
        me.lab.run(["scancel", str(job)])
        return 0

    return int(until(shared, 30, "a decision in time"))


def test_one_gpu_is_pinned_and_several_are_slurms(make_lab: Make) -> None:
    lab = lab_of_four(make_lab, "anyone")
    me = desk(lab, 200)
    train = me.train(memory_mib=1000, smact=0.1, work_s=300)
    jobs = [
        submit(me, pattern=r"shard:a100-\d:\d+", wrap=f"srun sh -c 'echo inner; exec {train}'")
        for _ in range(3)
    ]
    for number, job in enumerate(jobs):
        lab.wait(job, "RUNNING")
        found = re.search(r"shard:a100-(\d):(\d+)", asks(lab, job))
        assert found and int(found[1]) == number, "magm: the GPU with most free memory"
        until(partial(trains, lab, job), 60, "an inner step has its GPU")
        assert f"a100-{number} by auto" in told(me, job)
    one = int(asks(lab, jobs[0]).rsplit(":", 1)[1])
    assert shares(lab) == [one, one, one, 0]

    two = submit(me, "-n2", "--gpus-per-task=1")
    row = lab.wait(two, "RUNNING")
    assert re.fullmatch(r"gres/shard:\d+", row["TresPerTask"])
    each = int(row["TresPerTask"].rsplit(":", 1)[1])
    assert sorted(shares(lab)) == sorted([one + each, one + each, one, 0])

    # The next share goes where that one is not.
    late = submit(me, pattern=r"shard:a100-3:\d+")
    lab.wait(late, "RUNNING")
    assert sorted(shares(lab)) == sorted([one + each, one + each, one, one])


def test_by_default_several_gpus_are_whole_and_a_share_waits_for_its_pin(make_lab: Make) -> None:
    """Nothing would keep several GPUs off another user's. One that has no pin asks for a whole GPU,
    per task like the share that it is to be."""
    lab = lab_of_four(make_lab, "user")
    ada, ben = desk(lab, 200, user=0), desk(lab, 210, user=1)
    two = ada.submit("-n2", "--gpus-per-task=1", *QUIET, wrap="sleep 300")
    assert "shard" not in asks(lab, two)
    lab.wait(two, "RUNNING")
    assert "colocd pins no share of several GPUs" in str(ada.explain(two)["decision"])

    one = submit(ada, pattern=r"shard:a100-2:\d+")
    lab.wait(one, "RUNNING")
    whole = lab.sbatch("--gpus=1", *QUIET, wrap="sleep 300", user=ben.user)
    lab.wait(whole, "RUNNING")
    waits = ben.submit("--gpus=1", *QUIET, wrap="sleep 300")
    # It may have been submitted before colocd saw that the last GPU is taken.
    until(lambda: asks(lab, waits) == "gres/gpu:1", 30, "it asks for a whole GPU, per task")
    assert lab.job(waits)["JobState"] == "PENDING", "ada's share has room, but she is another user"
    # Nor does he get beside her by asking for it himself.
    edit = ["scontrol", "update", f"JobId={waits}", "TresPerTask=gres/shard:a100-2:1"]
    assert lab.run(edit, user=ben.user, check=False).returncode
    share = ["sbatch", "-n1", "--tres-per-task=gres/shard:a100-2:1", "--wrap=true"]
    assert lab.run(share, user=ben.user, check=False).returncode
    assert asks(lab, waits) == "gres/gpu:1"
    lab.run(["scancel", str(two)])
    lab.wait(waits, "RUNNING", 60)
    assert re.fullmatch(r"gres/shard:a100-[01]:\d+", asks(lab, waits)), asks(lab, waits)


def test_after_an_oom_a_pinned_share_comes_back_on_a_whole_gpu(make_lab: Make) -> None:
    lab = lab_of_four(make_lab, "user")
    me = desk(lab, 200)
    work = me.train(memory_mib=38000, smact=0.3, work_s=1)
    job = submit(me, pattern=r"shard:a100-\d:\d+", wrap=f"srun {work}")
    row = lab.wait(job, "COMPLETED", 180)
    assert re.search(r"gres/gpu:1", row["TresPerTask"]), row
    assert "shard" not in asks(lab, job)
    found = [run["outcome"] for run in me.explain(job)["runs"]]
    assert found[0] == "oom-gpu"
