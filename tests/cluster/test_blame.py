# SPDX-License-Identifier: Apache-2.0
"""Whose fault it was that a job on a shared GPU ended, told by colocd on a real Slurm.

Tests have models of their own: one that ran out of memory is remembered.
"""

from collections.abc import Callable
from typing import Any

from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import Desk, desk, shards, until

FAST: dict[str, dict[str, object]] = {"daemon": {"idle_s": 1.0}}
STREAMS = {**FAST, "sharing": {"method": "streams", "frameworks": "off"}}


def ended(me: Desk, job_id: int, restart: int = 0) -> dict[str, Any]:
    """One run of a job, once colocd has closed it."""

    def closed() -> dict[str, Any] | None:
        runs = me.explain(job_id)["runs"]
        found = [run for run in runs if run["restart"] == restart and run["outcome"]]
        return found[0] if found else None

    found = until(closed, 90, f"run {restart} of {job_id} has ended")
    assert isinstance(found, dict)
    return found


def test_a_fault_of_mps(make_lab: Callable[..., Lab]) -> None:
    """Both clients of the server die of the same words; neither is to blame."""
    lab = make_lab(settings=FAST, machine="1xa100-40gb")
    me = desk(lab, 152)
    train = me.train(memory_mib=2000, smact=0.1, work_s=300)
    jobs = [me.submit("--mem=50", "--no-requeue", wrap=train) for _ in range(2)]
    for job_id in jobs:
        until(lambda job_id=job_id: "step " in lab.output(job_id), 60, "it trains")
    ledger = str(lab.dir / "nodes" / "n1" / "ledger")
    lab.run(["coloc-emu", "fault", ledger, "0", "mps-fault"])
    found = [ended(me, job_id) for job_id in jobs]
    assert {run["outcome"] for run in found} == {"failed"}
    # The driver's word is in the records of both; where the agent was slower than an Epilog, the
    # first is judged again when the second has ended.
    until(
        lambda: [ended(me, job_id)["blame"] for job_id in jobs] == ["mps-fault"] * 2,
        30,
        "neither is to blame",
    )


def test_a_gpu_that_falls_off_the_bus(make_lab: Callable[..., Lab]) -> None:
    """No program's fault: the driver's Xid 79 tells whose doing it was."""
    lab = make_lab(settings=FAST, machine="2xa100-40gb")
    me = desk(lab, 156)
    job_id = me.submit(
        "--mem=50", "--no-requeue", wrap=me.train(memory_mib=2000, smact=0.1, work_s=300)
    )
    until(lambda: "step " in lab.output(job_id), 60, "it trains")
    ledger = str(lab.dir / "nodes" / "n1" / "ledger")
    lab.run(["coloc-emu", "fault", ledger, "all", "lost"])
    run = ended(me, job_id)
    assert (run["outcome"], run["blame"]) == ("failed", "hardware")
    story = [one["text"] for one in me.explain(job_id)["story"] if one["kind"] == "blame"]
    assert "Xid 79" in story[0]


def test_an_out_of_memory_without_a_word(make_lab: Callable[..., Lab]) -> None:
    """The log goes nowhere: what the agent saw at the limit is the evidence, and it comes back."""
    lab = make_lab(settings=FAST, machine="1xa100-40gb")
    me = desk(lab, 153)
    held = me.submit("--mem=50", "--hold", wrap="true")
    limit_mib = shards(lab.job(held)) * 1024
    lab.run(["scancel", str(held)])
    # In ten steps: the ninth brings it to 40 MiB below its limit, the tenth above.
    liar = me.train(memory_mib=(limit_mib - 40) * 10 // 9, smact=0.1, work_s=1, ramp_s=25)
    job_id = me.submit("--mem=50", "--output=/dev/null", wrap=liar)
    run = ended(me, job_id)
    assert (run["outcome"], run["verdict"]) == ("oom-gpu", "requeue")
    assert run["evidence"]["kind"] == "telemetry" and run["blame"] == "self"


def test_a_neighbour_without_a_fence(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(settings=STREAMS, machine="1xa100-40gb")
    me, other = desk(lab, 154), desk(lab, 155, user=1)
    liar = other.submit(
        "--mem=50", wrap=other.train(memory_mib=38500, smact=0.1, work_s=300, ramp_s=8)
    )
    victim = me.submit("--mem=50", wrap=me.train(memory_mib=3400, smact=0.1, work_s=60, ramp_s=20))
    until(lambda: "step " in lab.output(liar), 60, "the liar trains")
    run = ended(me, victim)
    assert run["outcome"] == "oom-gpu"
    assert run["blame"] == "neighbour"
    story = [one["text"] for one in me.explain(victim)["story"] if one["kind"] == "blame"]
    assert f"job {liar} held" in story[0]
