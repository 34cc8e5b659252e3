# SPDX-License-Identifier: Apache-2.0
"""The agent on emulated GPUs: the real program, the real nvidia-ml-py, stand-ins for the rest."""

import fcntl
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .agents import LIMIT_S, Agent, train

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the agent keeps records as root")


def test_gpm_where_there_is_no_dcgm(make_agent: Callable[..., Agent]) -> None:
    """On Hopper NVML tells the activity itself, and the time of each process to divide it by."""
    agent = make_agent("2xh100-80gb", dcgmi=False)
    agent.start()
    agent.job(7)
    agent.job(8)
    train(agent, 7, 6000, 0.6)
    train(agent, 8, 3000, 0.2)
    agent.sees(7, 6000)
    agent.sees(8, 3000)
    agent.until(lambda: (agent.record(7)["gpus"][0]["smact_max"] or 0) > 0.4, "activity")
    agent.until(lambda: (agent.record(8)["gpus"][0]["smact_max"] or 0) > 0.13, "activity")
    mine, other = agent.record(7), agent.record(8)
    assert mine["sources"]["smact"] == "gpm" and mine["gpus"][0]["smact_how"] == "split"
    assert mine["gpus"][0]["smact_max"] == pytest.approx(0.6, rel=0.25)
    assert other["gpus"][0]["smact_max"] == pytest.approx(0.2, rel=0.35)
    assert "split" not in mine["why"]


def test_dcgms_own_statistics_of_a_run_alone(make_agent: Callable[..., Agent]) -> None:
    """Of a run with a whole GPU; gone from the host engine with it, also after a kill."""
    agent = make_agent(settings="job_stats = true")
    agent.start()
    agent.job(7, method="alone")
    agent.job(8, gpu=1)
    train(agent, 7, 6000, 0.6, CUDA_VISIBLE_DEVICES="0")
    train(agent, 8, 3000, 0.2, CUDA_VISIBLE_DEVICES="1")
    agent.until(lambda: agent.record(7).get("dcgm"), "DCGM's statistics are read")
    (gpu,) = agent.record(7)["dcgm"]["gpus"]
    assert gpu["uuid"] == agent.node.show()["gpus"][0]["uuid"]
    assert gpu["max_mib"] == 6000 and gpu["energy_j"] > 0
    assert 0 < gpu["utilization"] <= 0.73, "NVML's, 1.2 times the activity here"
    assert gpu["ecc_double"] == 0 and "slow_board" not in gpu
    assert "dcgm" not in agent.record(8) and "job_stats" not in agent.record(8)["why"]
    agent.end(signal.SIGKILL)
    assert "coloc-7.0" in agent.node.tool("dcgmi", "group", "-l").stdout
    (agent.run_dir / "7.json").unlink()
    agent.start()
    agent.until(
        lambda: "coloc-" not in agent.node.tool("dcgmi", "group", "-l").stdout, "it is removed"
    )
    assert agent.node.tool("dcgmi", "stats", "-j", "coloc-7.0", check=False).returncode != 0


def test_no_counters_at_all(make_agent: Callable[..., Agent]) -> None:
    """An A100 without DCGM: null with the reason, and memory all the same."""
    agent = make_agent(dcgmi=False)
    agent.start()
    agent.job(7)
    train(agent, 7, 6000, 0.6)
    agent.sees(7, 6000)
    found = agent.record(7)
    assert found["gpus"][0]["smact_mean"] is None and found["sources"]["smact"] is None
    assert "not on this node" in found["why"]["smact"] and "Hopper" in found["why"]["smact"]


def test_a_forged_environment_of_another_user(make_agent: Callable[..., Agent]) -> None:
    """SLURM_JOB_ID counts for the job's own user alone: root's process is no part of job 8."""
    agent = make_agent()
    agent.start()
    agent.job(7)
    agent.job(8, uid=65534)
    train(agent, 7, 2000, 0.3)
    train(agent, 8, 1000, 0.1)
    agent.until(lambda: (agent.record(7).get("last") or {}).get("foreign_mib") == 1000, "foreign")
    agent.until(lambda: agent.record(8).get("samples", 0) > 2, "job 8 is seen")
    assert agent.record(8)["last"]["held_mib"] == 0 and agent.record(8)["pids"] == []
    assert [event["kind"] for event in agent.record(7)["events"]] == ["foreign"]


def test_killed_and_started_again(make_agent: Callable[..., Agent]) -> None:
    """What came and went while it was away is found in the driver's accounting."""
    agent = make_agent()
    agent.start()
    agent.job(7)
    train(agent, 7, 2000, 0.3)
    agent.sees(7, 2000)
    agent.end(signal.SIGKILL)
    before = agent.record(7)
    second = agent.node.train(
        "--memory-mib", 5000, "--smact", 0.2, "--work-s", 0.2, SLURM_JOB_ID="7"
    )
    second.wait(LIMIT_S)
    agent.start()
    agent.until(lambda: len(agent.record(7)["pids"]) == 2, "the second process")
    after = agent.record(7)
    assert after["since_s"] == before["since_s"] and after["samples"] > before["samples"]
    # the two ran together
    assert after["gpus"][0]["peak_mib"] == 7000 and after["complete"]


def test_a_process_of_nobody_makes_it_incomplete(make_agent: Callable[..., Agent]) -> None:
    """Two jobs on a GPU, and one process too short for a sample: it may be either's."""
    agent = make_agent()
    agent.start()
    agent.job(7)
    agent.job(8)
    train(agent, 7, 2000, 0.3)
    train(agent, 8, 1000, 0.1)
    agent.sees(7, 2000)
    agent.end(signal.SIGKILL)
    short = agent.node.train("--memory-mib", 700, "--smact", 0.2, "--work-s", 0.2)
    short.wait(LIMIT_S)
    agent.start()
    agent.until(lambda: agent.record(7).get("unseen"), "one is missed")
    found = agent.record(7)
    assert (found["unseen"]["count"], found["unseen"]["peak_mib"]) == (1, 700)
    assert not found["complete"], "its run has not been watched for long"


def test_an_mps_folder_that_cannot_be_read(make_agent: Callable[..., Agent]) -> None:
    """The tidying of MPS fails in an unforeseen way: it is told, and the samples go on."""
    agent = make_agent()
    folder = agent.run_dir / "mps" / "x"
    folder.mkdir(parents=True)
    (folder / "daemon.json").write_text("[" * 100_000)
    agent.start()
    agent.job(7)
    train(agent, 7, 2000, 0.3)
    log = agent.node.folder / "agent.log"
    agent.until(lambda: "RecursionError" in log.read_text(), "it is told")
    agent.sees(7, 2000)
    before = agent.record(7)["samples"]
    agent.until(lambda: agent.record(7)["samples"] > before, "samples")
    assert agent.process is not None and agent.process.poll() is None


def test_a_lost_gpu(make_agent: Callable[..., Agent]) -> None:
    """It is noted, and hides nothing of the other."""
    agent = make_agent()
    agent.start()
    agent.job(7, gpu=0)
    agent.job(8, gpu=1)
    train(agent, 7, 2000, 0.3)
    train(agent, 8, 1000, 0.1, CUDA_VISIBLE_DEVICES="1")
    agent.sees(7, 2000)
    agent.sees(8, 1000)
    agent.node.fault(0, "nvml-busy")
    agent.until(lambda: [e for e in agent.record(7)["events"] if e["kind"] == "gpu-lost"], "noted")
    seen = agent.record(8)["samples"]
    agent.until(lambda: agent.record(8)["samples"] > seen, "the other goes on")
    assert agent.record(8)["events"] == []


def test_a_driver_that_hangs(make_agent: Callable[..., Agent]) -> None:
    """Samples stop, the agent does not; afterwards it goes on and the gap is told, not filled."""
    agent = make_agent("1xa100-40gb")
    agent.start()
    agent.job(7)
    train(agent, 7, 2000, 0.3)
    agent.sees(7, 2000)
    log = agent.node.folder / "agent.log"
    with agent.node.ledger.open("r+b") as ledger:
        fcntl.lockf(ledger, fcntl.LOCK_EX, 1)  # every call of NVML waits for it
        agent.until(lambda: "event=sample error" in log.read_text(), "it says so")
    before = agent.record(7)["samples"]
    agent.until(lambda: agent.record(7)["samples"] > before + 2, "it goes on")
    found = agent.record(7)
    assert found["gap_s"] > 5 and found["complete"], "the accounting knows what was meanwhile"
    assert 0 not in found["series"]["memory_mib"][1:]
    assert {event["kind"] for event in found["events"]} & {"driver", "gpu-lost"}


def test_mig_devices(make_agent: Callable[..., Agent]) -> None:
    agent = make_agent("mig-mixed")
    agent.start()
    uuid = agent.node.show()["gpus"][1]["mig"][0]["uuid"]
    agent.job(7, gpu=1)
    train(agent, 7, 2000, 0.1, CUDA_VISIBLE_DEVICES=uuid)
    agent.sees(7, 2000)
    [gpu] = [gpu for gpu in agent.record(7)["gpus"] if gpu["peak_mib"]]
    assert gpu["uuid"] == uuid


@pytest.mark.parametrize("sign", ["program", "variable"])
def test_a_profiler_has_the_counters_to_itself(make_agent: Callable[..., Agent], sign: str) -> None:
    agent = make_agent()
    agent.start()
    uuid = agent.job(70)
    train(agent, 70, 2000, 0.3)
    agent.until(lambda: agent.record(70).get("sources", {}).get("smact") == "dcgm", "figures")
    program = agent.node.folder / ("ncu" if sign == "program" else "slurmstepd")
    shutil.copy("/bin/sleep" if sign == "program" else "/bin/dash", program)
    env = {"SLURM_JOB_ID": "70", "COLOC_PROFILING": "1" if sign == "variable" else ""}
    # a slurmstepd's child is what the user started; here it is a shell of that name
    words = ["60"] if sign == "program" else ["-c", "sleep 60; true"]
    counters = ("dcgmi", "dmon", "-e", "1002", "-c", "1")
    with subprocess.Popen([program, *words], env=env, start_new_session=True) as profiler:
        try:
            agent.until(lambda: "job 70" in agent.record(70)["why"].get("smact", ""), "paused")
            # The record tells it a moment before the counters are let go.
            agent.until(lambda: "N/A" in agent.node.tool(*counters).stdout, "the counters are free")
        finally:
            os.killpg(profiler.pid, signal.SIGKILL)
    agent.until(lambda: "smact" not in agent.record(70)["why"], "resumed")
    agent.until(lambda: "N/A" not in agent.node.tool(*counters).stdout, "the counters are back")
    assert uuid == agent.record(70)["gpus"][0]["uuid"]


def test_counters_that_a_killed_agent_left_paused(make_agent: Callable[..., Agent]) -> None:
    agent = make_agent()
    agent.start()
    agent.job(71)
    train(agent, 71, 2000, 0.3)
    agent.sees(71, 2000)
    program = agent.node.folder / "ncu"
    shutil.copy("/bin/sleep", program)
    with subprocess.Popen([program, "60"], env={"SLURM_JOB_ID": "71"}) as profiler:
        agent.until(lambda: "job 71" in agent.record(71)["why"].get("smact", ""), "paused")
        agent.end(signal.SIGKILL)
        profiler.kill()
    agent.start()
    agent.until(
        lambda: "N/A" not in agent.node.tool("dcgmi", "dmon", "-e", "1002", "-c", "1").stdout,
        "resumed",
    )


def test_the_files_of_the_exporter(make_agent: Callable[..., Agent], tmp_path: Path) -> None:
    """One for each GPU that has jobs, named by its number; none for the others."""
    folder = tmp_path / "map"
    folder.mkdir()
    (folder / "1").write_text("99\n")
    agent = make_agent(settings=f'job_mapping_dir = "{folder}"')
    agent.start()
    agent.job(8)
    agent.job(7)
    agent.until(lambda: (folder / "0").exists() and (folder / "0").read_text() == "7\n8\n", "both")
    agent.until(lambda: not (folder / "1").exists(), "what another agent left is gone")
    (agent.run_dir / "7.json").unlink()
    agent.until(lambda: (folder / "0").read_text() == "8\n", "one")
    (agent.run_dir / "8.json").unlink()
    agent.until(lambda: not list(folder.iterdir()), "none")
