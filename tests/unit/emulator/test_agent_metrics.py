# SPDX-License-Identifier: Apache-2.0
"""What the real agent tells Prometheus of emulated GPUs, whole and cut by MIG."""

import os
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.ports import free_port

from .agents import Agent, train

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the agent sees processes as root")
MIB = 2**20


def lines(port: int) -> list[str]:
    """What the agent tells; [] while nothing listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            return str(answer.read().decode()).splitlines()
    except OSError:
        return []


def told(port: int, name: str, *words: str) -> list[float]:
    """The values of the series of a metric that have these words in their labels."""
    return [
        float(line.rsplit(" ", 1)[1])
        for line in lines(port)
        if line.startswith((f"{name}{{", f"{name} ")) and all(word in line for word in words)
    ]


def test_two_jobs_on_a_gpu(make_agent: Callable[..., Agent]) -> None:
    port = free_port()
    names = '["coloc", "slurm_job", "nvidia_gpu"]'
    agent = make_agent(settings=f"[metrics]\nagent_port = {port}\nnames = {names}")
    agent.start()
    uuid = agent.job(7)
    agent.job(8)
    training = train(agent, 7, 6000, 0.6)
    train(agent, 8, 3000, 0.2)
    agent.until(
        lambda: (
            told(port, "coloc_job_memory_bytes", '"8"') == [3000.0 * MIB]
            and told(port, "coloc_job_sm_activity_ratio", '"8"')
        ),
        "both are told",
    )
    assert told(port, "coloc_job_memory_bytes", '"7"', uuid) == [6000.0 * MIB]
    [mine] = told(port, "coloc_job_sm_activity_ratio", '"7"')
    [other] = told(port, "coloc_job_sm_activity_ratio", '"8"')
    assert mine > other > 0
    assert told(port, "nvidia_gpu_jobId", 'jobid="7"') == [7.0]
    assert told(port, "slurm_job_memory_usage_gpu", 'slurmjobid="7"') == [6000.0 * MIB]
    # No colocd has said that users' names may be told.
    assert told(port, "coloc_job_info", '"7"', 'user=""', 'method="mps"') == [1.0]
    assert told(port, "coloc_agent_linked") == [0.0]
    assert told(port, "coloc_gpu_jobs", uuid) == [2.0]
    training.kill()
    (agent.run_dir / "7.json").unlink()
    agent.until(lambda: told(port, "coloc_gpu_jobs", uuid) == [1.0], "its end is seen")


def test_mig_devices_and_their_files(make_agent: Callable[..., Agent], tmp_path: Path) -> None:
    """The labels and the files that dcgm-exporter has for them."""
    port, folder = free_port(), tmp_path / "map"
    settings = f'job_mapping_dir = "{folder}"\n[metrics]\nagent_port = {port}'
    agent = make_agent("mig-mixed", settings=settings)
    folder.mkdir()
    (folder / "1.99").write_text("5\n")
    agent.start()
    agent.job(7, gpu=1, mig=0)
    agent.job(9, gpu=0)
    gpus = agent.node.show()["gpus"]
    instance = gpus[1]["mig"][0]["gi"]
    labels = (f'UUID="{gpus[1]["uuid"]}"', f'GPU_I_ID="{instance}"', f'gpu="1:{instance}"')
    agent.until(lambda: told(port, "coloc_job_info", '"7"', *labels) == [1.0], "the MIG device")
    assert told(port, "coloc_job_info", '"9"', 'GPU_I_ID=""', 'gpu="0"') == [1.0]
    agent.until(lambda: (folder / f"1.{instance}").exists(), "its file")
    assert (folder / f"1.{instance}").read_text() == "7\n"
    assert (folder / "0").read_text() == "9\n"
    agent.until(lambda: not (folder / "1.99").exists(), "what another agent left is gone")
    # Two compute instances of one GPU instance are two devices.
    names = [line.rsplit(" ", 1)[0] for line in lines(port) if not line.startswith("#")]
    assert len(names) == len(set(names))
    (agent.run_dir / "7.json").unlink()
    agent.until(lambda: not (folder / f"1.{instance}").exists(), "and its end")


def test_without_a_port_nothing_is_told(make_agent: Callable[..., Agent]) -> None:
    agent = make_agent()
    agent.start()
    agent.job(7)
    agent.until(lambda: agent.record(7).get("samples", 0) > 1, "it samples")
    assert "metrics" not in (agent.node.folder / "agent.log").read_text()
