# SPDX-License-Identifier: Apache-2.0
"""The ports for Prometheus of an agent and of colocd on a real Slurm; off in the default lab."""

import re
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import desk, until
from tests.harness.ports import free_port

Make = Callable[..., Lab]
AGENT, COLOCD = "agent_port", "colocd_port"
MIB = 2**20


def scrape(port: int) -> dict[str, float]:
    """The value of each series, by its name with its labels; {} while nothing listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    except OSError:
        return {}
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def of(found: dict[str, float], name: str, **labels: object) -> list[float]:
    """The values of a metric's series that have these labels."""
    words = [f'{label}="{value}"' for label, value in labels.items()]
    return [
        value
        for series, value in found.items()
        if re.match(rf"{name}(\{{|$)", series) and all(word in series for word in words)
    ]


def test_nothing_listens_unless_the_site_says_so(lab: Lab) -> None:
    text = (lab.dir / "coloc.toml").read_text()
    assert "[metrics]" not in text
    listening = {
        int(line.split()[1].rpartition(":")[2], 16)
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
        if line.split()[3] == "0A"
    }
    assert not {9836, 9837} & listening


@pytest.mark.parametrize("private", ["", "jobs,usage"])
def test_two_users_on_one_gpu(make_lab: Make, private: str) -> None:
    """Each job with its own figures; whose they are, but where PrivateData hides it."""
    ports = {AGENT: free_port(), COLOCD: free_port()}
    names = ["coloc", "slurm_job", "nvidia_gpu"]
    line = f"PrivateData={private}\n" if private else ""
    lab = make_lab(settings={"metrics": {**ports, "names": names}}, slurm_conf_extra=line)
    # Prologs from before the agent's first sample are not counted.
    until(lambda: of(scrape(ports[AGENT]), "coloc_agent_sample_age_seconds"), 60, "it samples")
    jobs: dict[int, tuple[str, int]] = {}
    for number in (1, 2):
        me = desk(lab, 310 + number, user=number)
        train = me.train(memory_mib=3000 * number, smact=0.2, work_s=600)
        jobs[me.submit("--mem=50", wrap=train)] = (str(me.user), 3000 * number)
    for job_id in jobs:
        lab.wait(job_id, "RUNNING", 60)

    def all_is_told() -> bool:
        """Both hold all of their memory, and the agent has heard whether names may be told."""
        now = scrape(ports[AGENT])
        return all(
            of(now, "coloc_job_memory_bytes", slurmjobid=job_id) == [held_mib * MIB]
            and of(now, "coloc_job_sm_activity_ratio", slurmjobid=job_id)
            and (private or of(now, "coloc_job_info", user=user))
            for job_id, (user, held_mib) in jobs.items()
        )

    until(all_is_told, 60, "the agent tells both jobs")
    found = scrape(ports[AGENT])
    for job_id, (user, held_mib) in jobs.items():
        assert of(found, "coloc_job_memory_bytes", slurmjobid=job_id) == [held_mib * MIB]
        assert of(found, "nvidia_gpu_memory_used_bytes", jobid=job_id) == [held_mib * MIB]
        [promised] = of(found, "coloc_job_memory_reserved_bytes", slurmjobid=job_id)
        assert held_mib * MIB < promised < 40960 * MIB
        shown = "" if private else user
        assert of(found, "coloc_job_info", slurmjobid=job_id, user=shown) == [1.0]
        assert of(found, "slurm_job_memory_usage_gpu", slurmjobid=job_id, user=shown) != []
    assert of(found, "coloc_agent_linked") == [1.0]
    assert of(found, "coloc_prolog_seconds_count") == [float(len(jobs))]
    names_told = "\n".join(found)
    assert "emu-train" not in names_told
    assert str(lab.dir) not in names_told
    if private:
        assert not [user for user, _ in jobs.values() if f'"{user}"' in names_told]

    told = scrape(ports[COLOCD])
    assert of(told, "coloc_decisions_total", action="collocate", mode="on") == [float(len(jobs))]
    assert of(told, "coloc_submission_seconds_count")[0] >= len(jobs)
    assert of(told, "coloc_runs", state="RUNNING", action="collocate") == [float(len(jobs))]
    assert of(told, "coloc_gpus") == [2.0]
    for job_id in jobs:
        lab.run(["scancel", str(job_id)])
    until(
        lambda: sum(of(scrape(ports[COLOCD]), "coloc_runs_ended_total", shared="yes")) == len(jobs),
        60,
        "colocd counts both ends",
    )
    until(
        lambda: of(scrape(ports[AGENT]), "coloc_epilog_seconds_count") == [float(len(jobs))],
        30,
        "the agent has timed both Epilogs",
    )
    until(
        lambda: not of(scrape(ports[AGENT]), "coloc_job_memory_bytes"), 30, "the agent forgets both"
    )
