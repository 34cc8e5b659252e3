# SPDX-License-Identifier: Apache-2.0
"""Steered placement with a plan of the whole queue (placement.plan), on real daemons."""

import math
import time
from collections.abc import Callable
from typing import Any

import pytest

from slurm_coloc.adapters.store import Store
from slurm_coloc.admin.replay import replay
from slurm_coloc.core.place.activity import Activity
from slurm_coloc.core.place.interference import REFERENCE
from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import coloc, desk, until
from tests.cluster.rules import QUIET, told
from tests.cluster.test_steered import gpu, steered
from tests.cluster.test_users_apart import DEFAULT
from tests.harness.trace import WITHOUT_TRACE, may_trace_processes

#: logs are read, and activities are means over a quarter of a minute
AGENT = {"log_read_s": 1, "beat_s": 5, "window_s": 15}
Make = Callable[..., Lab]
pytestmark = [
    pytest.mark.needs_slurm("24.11", "does not change the shards of a waiting job to typed ones"),
    pytest.mark.timeout(300),
]


def left_s(lab: Lab, job: int) -> float | None:
    """What a running job's log says that it takes still."""
    rows = coloc(lab, "jobs")["jobs"]
    found = next((row["time_left"] for row in rows if row["job_id"] == job), None)
    return None if not found or found["by"] != "log" else found["left_s"]


def activities(lab: Lab) -> list[float]:
    """SM activity of each GPU, as colocd knows it."""
    return [one["smact"] or 0.0 for one in coloc(lab, "gpus")["gpus"]]


@pytest.mark.skipif(not may_trace_processes(), reason=WITHOUT_TRACE)
def test_a_job_goes_where_the_log_says_that_room_comes(make_lab: Make) -> None:
    """One GPU has more free memory, and a training that takes for ever: the policy would choose
    that one. The log of the other's says that it ends soon."""
    lab = steered(make_lab, {"plan": "order"}, {"agent": AGENT})
    me = desk(lab, 310)
    long = me.submit(*QUIET, wrap=me.train(memory_mib=3000, smact=0.95, work_s=3000, log_every_s=1))
    lab.wait(long, "RUNNING", 60)
    soon = me.submit(
        "--coloc-memory=12G",
        *QUIET,
        wrap=me.train(memory_mib=9000, smact=0.95, work_s=150, log_every_s=1),
    )
    lab.wait(soon, "RUNNING", 60)
    assert gpu(lab, long) != gpu(lab, soon)
    until(lambda: left_s(lab, long) and left_s(lab, soon), 60, "both logs are read")
    until(lambda: all(busy > 0.85 for busy in activities(lab)), 60, "both were measured alone")
    late = me.submit(*QUIET, wrap=me.train(memory_mib=3000, smact=0.6, work_s=60))
    lab.wait(late, "RUNNING", 200)
    assert gpu(lab, late) == gpu(lab, soon), told(me, late)
    assert "by plan" in told(me, late)
    for path in sorted((lab.dir / "coloc/state/placement").iterdir()):
        assert replay(path).same, path


@pytest.mark.skipif(not may_trace_processes(), reason=WITHOUT_TRACE)
def test_a_share_runs_while_its_owner_s_whole_gpu_job_waits(make_lab: Make) -> None:
    """One of two GPUs is taken for a while; the job that comes first wants both. In Slurm's
    order the share behind it would wait for them too. Another user's job is passed by nobody."""
    lab = steered(make_lab, {"plan": "order"}, {"agent": AGENT})
    me, other = desk(lab, 313), desk(lab, 314, user=1)
    long = me.submit(*QUIET, wrap=me.train(memory_mib=3000, smact=0.95, work_s=120, log_every_s=1))
    lab.wait(long, "RUNNING", 60)
    until(lambda: left_s(lab, long), 60, "its log is read")
    wide = me.submit("--gpus=2", *QUIET, wrap="true")
    until(lambda: "the plan starts it later" in told(me, wide) or None, 60, "it waits by the plan")
    short = me.submit(*QUIET, wrap=me.train(memory_mib=3000, smact=0.6, work_s=5))
    lab.wait(short, "COMPLETED", 60)
    assert lab.job(wide)["JobState"] == "PENDING" and lab.job(long)["JobState"] == "RUNNING"
    theirs = other.submit("--gpus=2", *QUIET, wrap="true")
    late = me.submit(*QUIET, wrap=me.train(memory_mib=3000, smact=0.6, work_s=5))
    for job in (long, wide, theirs, late):
        lab.wait(job, "COMPLETED", 200)
    began = [lab.job(job)["StartTime"] for job in (theirs, late)]
    assert began == sorted(began)


@pytest.mark.long
@pytest.mark.skipif(not may_trace_processes(), reason=WITHOUT_TRACE)
def test_what_two_trainings_cost_each_other_is_learned(make_lab: Make) -> None:
    """By their logs, alone and together, against what the emulated GPU really does."""
    tables = {"agent": AGENT, "slowdown": {"interval_s": 1}}
    lab = steered(make_lab, {"plan": "order"}, tables)
    first, second = desk(lab, 315), desk(lab, 316)
    busy = {"memory_mib": 3000, "smact": 0.9, "log_every_s": 1}
    wide = first.submit("--coloc-memory=30G", *QUIET, wrap="sleep 250")
    lab.wait(wide, "RUNNING", 60)
    long = first.submit(*QUIET, wrap=first.train(**busy, work_s=110))
    lab.wait(long, "RUNNING", 60)
    assert gpu(lab, long) != gpu(lab, wide)
    until(lambda: any(0.8 < one < 1.0 for one in activities(lab)), 60, "it was alone for a while")
    time.sleep(25)  # its pace counts from twenty looks at its log on, and comes with each beat
    short = second.submit(*QUIET, wrap=second.train(**busy, work_s=30))
    lab.wait(short, "COMPLETED", 150)
    assert gpu(lab, short) == gpu(lab, long)
    store = Store.read_only(lab.dir / "coloc/state")
    (pair,) = until(lambda: store.pairs.newest(), 30, "it is learned")
    assert pair.training != pair.beside and pair.method == "mps"
    alike = [Activity(0.9), Activity(0.9)]
    assert math.exp(pair.log_speed) == pytest.approx(REFERENCE.speeds(alike)[0], rel=0.12)


def test_two_users_in_the_default_configuration(make_lab: Make) -> None:
    """All jobs run, nobody's beside another user's, and none waits for ever."""
    lab = steered(make_lab, {"plan": "order"}, DEFAULT, users=2)
    desks = desk(lab, 311), desk(lab, 312, user=1)
    works = [me.train(memory_mib=3000, smact=0.5, work_s=8) for me in desks]
    jobs = [
        (me, me.submit(*QUIET, wrap=work))
        for _ in range(5)
        for me, work in zip(desks, works, strict=True)
    ]
    for _, job in jobs:
        lab.wait(job, "COMPLETED", 200)
    runs: list[dict[str, Any]] = []
    for me, job in jobs:
        found = me.explain(job)["runs"]
        assert len(found) == 1
        runs.append(found[0])
    for one in runs:
        for other in runs:
            if one["uid"] != other["uid"] and set(one["gpu_uuids"]) & set(other["gpu_uuids"]):
                apart = one["end_s"] <= other["start_s"] or other["end_s"] <= one["start_s"]
                assert apart, (one, other)
    assert any("by plan" in told(me, job) for me, job in jobs)
