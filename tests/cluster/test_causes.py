# SPDX-License-Identifier: Apache-2.0
"""Every cause of an end and its action, on a real Slurm. The table is in the README.

Tests have models of their own: one that ran out of memory is remembered.
"""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import Desk, ask, coloc, desk, shards, until
from tests.cluster.rules import on_whole_gpu, over

FAST: dict[str, dict[str, object]] = {"daemon": {"idle_s": 1.0}}
# Nothing holds anybody, and nobody is put back before he began.
STREAMS = {
    **FAST,
    "sharing": {"method": "streams", "frameworks": "off"},
    "gate": {"enabled": False},
}


def run_of(me: Desk, job_id: int, restart: int = 0) -> dict[str, Any]:
    """One run of a job, once colocd has closed it."""

    def closed() -> dict[str, Any] | None:
        runs = me.explain(job_id)["runs"]
        found = [run for run in runs if run["restart"] == restart and run["outcome"]]
        return found[0] if found else None

    found = until(closed, 90, f"run {restart} of {job_id} has ended")
    assert isinstance(found, dict)
    return found


def story(me: Desk, job_id: int) -> str:
    return " / ".join(line["text"] for line in me.explain(job_id)["story"])


def gpu_of(lab: Lab, job_id: int) -> str:
    """Its GPUs' numbers; from 24.11 on Slurm tells what is used of each instead: (0/39,6/39)."""
    gres = lab.job(job_id).get("GRES", "")
    _, told, numbers = gres.rpartition("IDX:")
    if told:
        return str(numbers.rstrip(")"))
    used = gres.partition("(")[2].rstrip(")").split(",")
    return ",".join(str(n) for n, one in enumerate(used) if not one.startswith("0/"))


def back(lab: Lab, job_id: int, restarts: int = 1) -> dict[str, str]:
    """The job, once it is in the queue again."""
    found = until(
        lambda: job if (job := lab.job(job_id))["Restarts"] == str(restarts) else None,
        90,
        f"job {job_id} is put back ({restarts})",
    )
    assert isinstance(found, dict)
    return found


@pytest.mark.timeout(240)
def test_its_own_need_at_the_fence(make_lab: Callable[..., Lab]) -> None:
    """More memory on shards again, where others may join it; every try is told."""
    lab = make_lab(settings=FAST, machine="1xa100-40gb")
    me = desk(lab, 160)
    job_id = me.submit("--mem=50", wrap=me.train(memory_mib=8000, smact=0.2, work_s=60))
    before = shards(lab.job(job_id))
    run = run_of(me, job_id)
    assert (run["outcome"], run["blame"], run["verdict"]) == ("oom-gpu", "self", "requeue")
    back(lab, job_id)
    job = lab.wait(job_id, "RUNNING", 60)
    grown = shards(job)
    assert before + 5 <= grown < 39
    assert grown * 1024 >= 8000
    until(lambda: f"{grown}.0 GiB for this job" in lab.output(job_id), 30, "it is told its share")
    until(lambda: "step " in lab.output(job_id), 30, "it trains in it")
    later = desk(lab, 161).submit("--mem=50", wrap=me.train(memory_mib=2000, smact=0.1, work_s=60))
    lab.wait(later, "RUNNING", 60)
    assert gpu_of(lab, later) == gpu_of(lab, job_id), "it joins the recovered one"
    rows = {row["job_id"]: row for row in coloc(lab, "jobs", user=me.user)["jobs"]}
    assert (rows[job_id]["retry_way"], rows[job_id]["retry_cause"]) == ("more", "self")
    shown = lab.run(["coloc", "explain", str(job_id)], user=me.user).stdout
    assert "Try 1" in shown and "comes back with more memory" in shown
    told = lab.run(["coloc", "report", str(job_id)], user=me.user).stdout
    assert "Try 1" in told and f"reserved {grown}.0 GiB" in told
    lab.run(["scancel", str(job_id), str(later)])


@pytest.mark.timeout(300)
def test_a_neighbour_s_overrun(make_lab: Callable[..., Lab]) -> None:
    """The same request again, nothing counted, past the node; not remembered against the model."""
    lab = make_lab(settings=STREAMS, machine="1xa100-40gb", nodes=2)
    me, other = desk(lab, 162), desk(lab, 163, user=1)
    liar = other.submit(
        "--mem=50", "--nodelist=n1",
        wrap=other.train(memory_mib=38500, smact=0.1, work_s=300, ramp_s=8),
    )  # fmt: skip
    lab.wait(liar, "RUNNING")
    train = me.train(memory_mib=3400, smact=0.1, work_s=20, ramp_s=20)
    victim = me.submit("--mem=50", wrap=train)
    asked = lab.job(victim)["TresPerNode"]
    assert lab.wait(victim, "RUNNING", 60)["NodeList"] == "n1"
    run = run_of(me, victim)
    assert (run["outcome"], run["blame"]) == ("oom-gpu", "neighbour")
    assert run["verdict"] == "requeue-victim"
    back(lab, victim)
    again = lab.wait(victim, "RUNNING", 90)
    assert again["TresPerNode"] == asked
    assert again["NodeList"] == "n2", story(me, victim)
    assert "nothing of it counts against the job" in story(me, victim)
    assert "kept from n1 for a while" in story(me, victim)
    lab.wait(victim, "COMPLETED", 90)
    held = me.submit("--mem=50", "--hold", wrap="true")
    assert shards(lab.job(held)), "the model is not kept from shares for what a neighbour did"
    lab.run(["scancel", str(liar), str(held)])


@pytest.mark.timeout(240)
def test_a_fault_of_mps(make_lab: Callable[..., Lab]) -> None:
    """All clients of the server come back as they were; at the end of the tries on whole GPUs."""
    settings = {**FAST, "recovery": {"max_victim_requeues": 1}}
    lab = make_lab(settings=settings, machine="1xa100-40gb")
    me = desk(lab, 164)
    train = me.train(memory_mib=2000, smact=0.1, work_s=300)
    jobs = [me.submit("--mem=50", wrap=train) for _ in range(2)]
    asked = {job_id: lab.job(job_id)["TresPerNode"] for job_id in jobs}
    ledger = str(lab.dir / "nodes" / "n1" / "ledger")

    def fault(restart: int) -> None:
        for job_id in jobs:
            lab.wait(job_id, "RUNNING", 60)
        until(lambda: holders(lab) >= set(jobs), 60, f"both train, start {restart}")
        lab.run(["coloc-emu", "fault", ledger, "all", "mps-fault"])

    fault(0)
    for job_id in jobs:
        # The first of them may be judged before the second has told of the fault, and again then.
        until(lambda job_id=job_id: run_of(me, job_id)["blame"] == "mps-fault", 60, "not its own")
        assert run_of(me, job_id)["outcome"] == "failed"
        back(lab, job_id)
        assert lab.job(job_id)["TresPerNode"] == asked[job_id]
        assert me.explain(job_id)["runs"][0]["verdict"] == "requeue-victim"
        assert "failed, caused by a fault of MPS" in story(me, job_id)
    # Another beside it: 22.05 may start two that come back in one second without their Prolog.
    lab.run(["scancel", str(jobs.pop())])
    lab.wait(jobs[0], "RUNNING", 60)
    jobs.append(me.submit("--mem=50", wrap=train))
    fault(1)
    back(lab, jobs[0], 2)
    until(lambda: on_whole_gpu(lab.job(jobs[0])), 60, "a whole GPU")
    back(lab, jobs[1])
    assert lab.job(jobs[1])["TresPerNode"] == asked[jobs[0]], "its first"
    lab.run(["scancel", *map(str, jobs)])


def holders(lab: Lab) -> set[int]:
    """Jobs that hold memory of the emulated GPUs."""
    ledger = str(lab.dir / "nodes" / "n1" / "ledger")
    shown = json.loads(lab.run(["coloc-emu", "show", ledger, "--json"]).stdout)
    found = [one for gpu in shown["gpus"] for one in gpu["processes"]]
    return {int(one["job"]) for one in found if one.get("job")}


OTHERS = """\
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=low Nodes=n1 MaxTime=60 State=UP PriorityTier=1
PartitionName=first Nodes=n1 PriorityTier=100 PreemptMode=OFF MaxTime=60 State=UP
"""


@pytest.mark.long
@pytest.mark.timeout(300)
def test_what_is_left_to_slurm_and_to_the_owner(make_lab: Callable[..., Lab]) -> None:
    """Exit 1, cancel, time limit, preemption and a failed node: recorded as what they are, never
    taken for memory, and the reservation stays where Slurm puts the job back."""
    lab = make_lab(
        settings=FAST, machine="1xa100-40gb", nodes=2, slurm_conf_extra=OTHERS + "ReturnToService=1"
    )
    me = desk(lab, 165)
    long = me.train(memory_mib=2000, smact=0.1, work_s=600)
    short = me.train(memory_mib=2000, smact=0.1, work_s=1, exit_code=1)
    late = me.submit("--mem=50", "--time=1", "--nodelist=n2", "-p", "main", wrap=long)
    exits = me.submit("--mem=50", wrap=short)
    gone = me.submit("--mem=50", wrap=long)
    lab.wait(gone, "RUNNING")
    lab.run(["scancel", str(gone)], user=me.user)
    lab.wait(gone, "CANCELLED", 30)
    lab.wait(exits, "FAILED", 60)
    for job_id, outcome in ((exits, "failed"), (gone, "cancelled")):
        run = run_of(me, job_id)
        assert (run["outcome"], run["verdict"]) == (outcome, "not-ours")
        assert lab.job(job_id)["Restarts"] == "0"
    # Preempted on n1, put back by Slurm in its share.
    low = me.submit("--mem=50", "-p", "low", wrap=long)
    asked = lab.wait(low, "RUNNING", 60)["TresPerNode"]
    until(lambda: me.explain(low)["runs"], 20, "colocd follows it")
    hog = lab.sbatch("-p", "first", "--gres=shard:39", "--mem=10", wrap="sleep 600")
    lab.wait(hog, "RUNNING", 60)
    job = back(lab, low)
    assert job["TresPerNode"] == asked
    assert run_of(me, low)["outcome"] in ("preempted", "requeued")
    assert run_of(me, low)["verdict"] == "not-ours"
    lab.run(["scancel", str(hog), str(low)])
    # Slurm looks at limits every 30 s.
    lab.wait(late, "TIMEOUT", 150)
    run = run_of(me, late)
    assert (run["outcome"], run["verdict"]) == ("timeout", "not-ours")
    assert lab.job(late)["Restarts"] == "0"
    # Its node fails: Slurm puts it back in its share.
    moved = me.submit("--mem=50", "--nodelist=n2", wrap=long)
    asked = lab.wait(moved, "RUNNING", 60)["TresPerNode"]
    until(lambda: me.explain(moved)["runs"], 20, "colocd follows it")
    lab.daemon("slurmd-n2").kill()
    lab.run(["scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=test"])
    job = back(lab, moved)
    assert job["TresPerNode"] == asked
    run = run_of(me, moved)
    assert (run["outcome"], run["verdict"]) == ("node-fail", "not-ours")
    lab.run(["scancel", str(moved)])
    until(lambda: over(lab, late, moved), 60, "nothing is left")


BUSY = "PriorityWeightAge=100000\nPriorityMaxAge=1-0\nPriorityCalcPeriod=1"


def priority(lab: Lab, job_id: int) -> int:
    return int(lab.job(job_id)["Priority"])


@pytest.mark.timeout(300)
def test_the_place_in_the_queue(make_lab: Callable[..., Lab]) -> None:
    """First in line for a while and a few times a day; who runs out of memory on purpose passes
    nobody after that. The raise survives slurmctld's reconfiguration."""
    settings = {
        **FAST,
        "recovery": {"steps": 0, "raise_for_s": 30.0, "max_first_per_user_day": 1},
    }
    lab = make_lab(settings=settings, machine="1xa100-40gb", slurm_conf_extra=BUSY)
    greedy, other = desk(lab, 166), desk(lab, 167, user=1)
    blocks = other.submit(
        "--mem=50", "--time=50", wrap=other.train(memory_mib=2000, smact=0.1, work_s=600)
    )
    liar = greedy.train(memory_mib=60000, smact=0.1, work_s=1)
    # All run before the whole GPU is asked for: 24.11.5 backfills nothing behind that (ADR 20).
    turns = [lab.home(greedy.user or "root") / name for name in ("first", "second")]
    first, second = (
        desk(lab, millions).submit(
            "--mem=50", "--time=2", wrap=f"until [ -e {turn} ]; do sleep 0.2; done; {liar}"
        )
        for millions, turn in zip((166, 168), turns, strict=True)
    )
    for running in (blocks, first, second):
        lab.wait(running, "RUNNING", 60)
    # As ours: before 23.11 Slurm puts other whole-GPU jobs on a shared device.
    waits = other.submit("--mem=50", "--coloc-policy=exclusive", wrap="sleep 600")
    time.sleep(1.1)  # Slurm counts whole seconds, and of two of the same the older job is first
    turns[0].touch()
    until(lambda: priority(lab, first) == 100_000, 60, "it goes first in line")
    assert on_whole_gpu(lab.job(first))
    lab.run(["scontrol", "reconfigure"])
    # A second one on the same day gets back what it had, and that is not more than the other's.
    turns[1].touch()
    back(lab, second)
    until(lambda: ask(lab, op="status")["open_work"] == 0, 60, "it is in the queue")
    assert priority(lab, first) == 100_000
    assert 0 < priority(lab, second) <= priority(lab, waits)
    # The time of the first one is over: it has the place of a job of its age.
    until(lambda: priority(lab, first) < 100_000, 60, "its time at the front is over")
    assert 0 < priority(lab, first) <= priority(lab, waits)
    assert "not raised now" in story(greedy, first)
    lab.run(["scancel", str(blocks)])
    lab.wait(waits, "RUNNING", 60)
    assert {lab.job(one)["JobState"] for one in (first, second)} == {"PENDING"}
