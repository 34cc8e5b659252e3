# SPDX-License-Identifier: Apache-2.0
"""What each job used, as the node's agent saw it: four on one GPU, an agent that is killed between,
and a stranger who claims to be one of them."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import coloc, desk, train, until

Make = Callable[..., Lab]
#: true footprints (MiB) and seconds alone
JOBS = ((2100, 14), (3300, 15), (4700, 16), (6100, 17))


def record(lab: Lab, job: int, restart: int = 0) -> dict[str, Any]:
    """The agent's record of a run; {} before there is one."""
    path = Path(f"{lab.dir}/nodes/n1/jobs/use/{job}.{restart}.json")
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except OSError:
        return {}
    return found


def held(lab: Lab, job: int) -> int:
    return (record(lab, job).get("last") or {}).get("held_mib", 0)


@pytest.mark.timeout(240)
def test_four_jobs_on_one_gpu(make_lab: Make) -> None:
    """Each has its own peak, within 2 % of the truth, whatever happens to the agent meanwhile."""
    lab = make_lab(users=2)
    me, other = desk(lab, 300), desk(lab, 300, user=1)
    jobs = [
        me.submit("--gpus=1", wrap=train(lab, memory_mib=mib, smact=0.2, work_s=work_s))
        for mib, work_s in JOBS
    ]
    truth = dict(zip(jobs, (mib for mib, _ in JOBS), strict=True))
    until(lambda: all(held(lab, job) == truth[job] for job in jobs), 40, "all hold their memory")
    uuids = {gpu["uuid"] for job in jobs for gpu in record(lab, job)["gpus"]}
    assert len(uuids) == 1, "they share one GPU"

    # Another user's process, in no job, says that it is the first one's.
    env = lab.login_env(other.user) | {"SLURM_JOB_ID": str(jobs[0])}
    env |= {"COLOC_EMU_LEDGER": f"{lab.dir}/nodes/n1/ledger", "CUDA_VISIBLE_DEVICES": uuids.pop()}
    argv = [f"{lab.dir}/bin/emu-train", "--memory-mib", "1500", "--smact", "0.1", "--work-s", "60"]
    with subprocess.Popen(
        argv, env=env, user=other.user, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as stranger:
        try:
            until(
                lambda: all(
                    (record(lab, job)["last"] or {})["foreign_mib"] == 1500 for job in jobs
                ),
                20,
                "the stranger is seen as one",
            )
            lab.daemon("agent-n1").kill()
            before = record(lab, jobs[0])
            lab.daemon("agent-n1").start()
            until(lambda: record(lab, jobs[0])["samples"] > before["samples"], 20, "it goes on")
            assert record(lab, jobs[0])["since_s"] == before["since_s"]
        finally:
            stranger.kill()

    found = coloc(lab, "gpus", user=me.user)["gpus"]
    shown = {one["job_id"]: one["mib"] for gpu in found for one in gpu["jobs"]}
    assert not found or shown.keys() <= set(jobs)
    for job in jobs:
        until(lambda job=job: me.explain(job)["runs"][-1]["outcome"], 60, f"job {job} has ended")
        used = record(lab, job)
        [gpu] = used["gpus"]
        assert gpu["peak_mib"] == pytest.approx(truth[job], rel=0.02)
        assert me.explain(job)["runs"][-1]["peak_mib"] == gpu["peak_mib"]
        assert used["complete"] and len(used["pids"]) == 1
        assert gpu["neighbours_max"] == 3 and gpu["smact_how"] == "split"
        assert {one["job_id"] for one in used["neighbours"]} == set(jobs) - {job}
        assert [one["kind"] for one in used["events"]] == ["foreign"]
        assert 0 < gpu["energy_j"] < gpu["gpu_energy_j"]


@pytest.mark.timeout(120)
def test_a_job_alone_and_idle(make_lab: Make) -> None:
    """SM activity and energy of a job that has its GPU to itself, and one that does nothing."""
    lab = make_lab(users=1, settings={"agent": {"idle_after_s": 4}})
    me = desk(lab, 300)
    busy = me.submit("--gpus=1", wrap=train(lab, memory_mib=3000, smact=0.5, work_s=8))
    until(lambda: me.explain(busy)["runs"][-1]["outcome"], 60, "it has ended")
    used = record(lab, busy)
    [gpu] = used["gpus"]
    assert (gpu["smact_how"], gpu["peak_mib"]) == ("alone", 3000)
    assert gpu["smact_max"] == pytest.approx(0.5, rel=0.02)
    # Of the whole run: a full machine takes seconds to start and end it.
    assert 0.1 < gpu["smact_mean"] <= 0.5 and used["sources"]["smact"] == "dcgm"

    idle = me.submit("--gpus=1", wrap=train(lab, memory_mib=3000, smact=0.0, work_s=40))
    until(
        lambda: [e for e in record(lab, idle).get("events", ()) if e["kind"] == "idle"], 40, "idle"
    )
    until(
        lambda: "idle" in lab.run(["coloc", "jobs"], user=me.user).stdout, 40, "its owner sees it"
    )
    until(
        lambda: any("has used no GPU" in line["text"] for line in me.explain(idle)["story"]),
        40,
        "colocd notes it",
    )
    table = lab.run(["coloc", "gpus"], user=me.user).stdout.splitlines()
    assert table[0].split()[:4] == ["NODE", "GPU", "UUID", "NAME"] and f"{idle}:2.9" in table[1]
    lab.run(["scancel", str(idle)], user=me.user)


@pytest.mark.timeout(180)
def test_dcgms_own_statistics_of_a_whole_gpu(make_lab: Make) -> None:
    """Kept by DCGM for a job that shares with nobody, shown by `coloc report`, and removed."""
    lab = make_lab(users=1, settings={"agent": {"job_stats": True}})
    me = desk(lab, 300)
    alone = me.submit(
        "--gres=gpu:1",
        "--coloc-policy=exclusive",
        wrap=train(lab, memory_mib=3000, smact=0.5, work_s=25),
    )
    until(lambda: me.explain(alone)["runs"][-1]["outcome"], 120, "it has ended")
    [gpu] = record(lab, alone)["dcgm"]["gpus"]
    assert (gpu["uuid"], gpu["max_mib"]) == (record(lab, alone)["gpus"][0]["uuid"], 3000)
    told = lab.run(["coloc", "report", str(alone)], user=me.user).stdout
    [line] = [one for one in told.splitlines() if one.startswith("DCGM, GPU-")]
    assert "2.9 GiB at most" in line and "utilization" in line and line.endswith("no errors")
    node = {"COLOC_EMU_LEDGER": f"{lab.dir}/nodes/n1/ledger"}
    groups = ["dcgmi", "group", "-l"]
    until(lambda: "coloc-" not in lab.run(groups, env=node).stdout, 40, "DCGM has forgotten it")
