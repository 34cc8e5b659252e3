# SPDX-License-Identifier: Apache-2.0
"""Two controllers: only the active one's colocd acts. The last file but for sacct's: a second
controller is put beside the running cluster for it, and taken away again."""

import os
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.compose.cluster import ROOT, Cluster
from tests.compose.test_life import CARDS, another_model, submit, train

TOML = "/etc/slurm-coloc/coloc.toml"
TIMEOUT_S = 5  # SlurmctldTimeout: the backup takes over when the first has been silent for it


def compose(*args: str) -> None:
    """One command of compose on this cluster, with the profile of two controllers."""
    done = subprocess.run(
        [str(ROOT / "docker/cluster"), "compose", *args],
        env={**os.environ, "COLOC_PROFILE": "ha"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    if done.returncode != 0:
        pytest.skip(f"compose {' '.join(args)}: {done.stderr.strip()[-300:]}")


def leads(cluster: Cluster, active: str, standby: str = "") -> bool:
    """Whether ``active``'s colocd acts, with both nodes linked to it, and the other's does not."""
    told = cluster.status(active)
    waits = not standby or cluster.status(standby).get("role") == "standby"
    return waits and told.get("role") == "active" and told["linked_nodes"] == len(cluster.nodes)


def again(cluster: Cluster) -> None:
    """All daemons but the backup's start with the configuration as it now is."""
    cluster.configure()
    cluster.daemon("controller", "restart", "colocd")
    for node in cluster.nodes:
        cluster.daemon(node, "restart", "agent")


@pytest.fixture
def pair(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with a second controller, both linked and at rest; as before afterwards."""
    if cluster.release != (24, 11):
        pytest.skip("two controllers were tried on Slurm 24.11 alone (over two minutes)")
    if "backup" in cluster.run(["cat", TOML]).stdout:
        pytest.skip("this cluster has had a second controller from its start")
    machines = ("controller", "login", *cluster.nodes)
    cluster.run(["cp", "-p", "/etc/slurm/slurm.conf", "/etc/slurm/slurm.conf.one"], on="controller")
    edit = f"s/^SlurmctldHost=.*/&\\nSlurmctldHost=backup\\nSlurmctldTimeout={TIMEOUT_S}/"
    try:
        cluster.daemon("controller", "stop", "slurmctld")
        cluster.run(["sed", "-i", edit, "/etc/slurm/slurm.conf"], on="controller")
        for machine in machines:
            words = ["sed", "-i", r's/^\(controllers = .*\)\]/\1, "backup:6824"]/']
            cluster.run([*words, TOML], on=machine)
        tickets = "s/controllers=controller:6824/&,backup:6824/"
        cluster.run(["sed", "-i", tickets, "/etc/slurm/plugstack.conf"], on="controller")
        # Before slurmctld, which remembers a name that it could not resolve.
        compose("up", "-d", "--no-deps", "--no-build", "backup")
        again(cluster)
        cluster.until(lambda: leads(cluster, "controller", "backup"), 60, "one leads, one waits")
        yield cluster
    finally:
        cluster.clear()
        compose("rm", "-sf", "backup")
        cluster.run(["mv", "/etc/slurm/slurm.conf.one", "/etc/slurm/slurm.conf"], on="controller")
        cluster.run(["sed", "-i", "s/,backup:6824//", "/etc/slurm/plugstack.conf"], on="controller")
        for machine in machines:
            cluster.run(["sed", "-i", 's/, "backup:6824"//', TOML], on=machine)
        again(cluster)
        cluster.until(lambda: leads(cluster, "controller"), 60, "the one controller leads again")


def later(cluster: Cluster, word: str) -> int:
    """A share's job that takes more than its share's GPU has left once ``go`` was said."""
    lie = train(memory_mib=CARDS["g2"][2], smact=0.5, work_s=2)
    wrap = f"until [ -e ha-{word} ]; do sleep 0.3; done; {lie}"
    return submit(cluster, "g2", *another_model(), wrap=wrap)


def saved(cluster: Cluster, job_id: int) -> None:
    """Wait until slurmctld has written a job's state: it does so up to five seconds later, and one
    that is killed before has lost the job (tried on 24.11)."""
    began = int(cluster.run(["date", "+%s"], on="controller").stdout)
    words = ["stat", "-c", "%Y", "/var/spool/slurmctld/job_state"]

    def written() -> bool:
        told = cluster.run(words, on="controller", check=False).stdout
        return int(told or 0) > began

    cluster.run(["scontrol", "update", f"JobId={job_id}", "Comment=kept"], on="controller")
    cluster.until(written, 30, "slurmctld saves its state")


def outcomes(cluster: Cluster, job_id: int) -> list[str | None]:
    """How the runs of a job ended, as its owner is told on the login node."""
    told = cluster.coloc("explain", str(job_id), user="ada")
    return [run["outcome"] for run in told["runs"]]


def recovers(cluster: Cluster, job_id: int, word: str) -> float:
    """Let a job of ``later`` run out of memory; seconds until it was done on a whole GPU."""
    began = time.monotonic()
    cluster.run(["touch", f"ha-{word}"], user="ada")
    cluster.until(lambda: cluster.job(job_id).restarts == 2, 90, "more memory did not do")
    job = cluster.wait(job_id, "COMPLETED")
    took = time.monotonic() - began
    assert job.tres_per_node.endswith("gpu:1")
    found = ["oom-gpu", "oom-gpu", "completed"]
    cluster.until(lambda: outcomes(cluster, job_id) == found, 30, "explain tells of all runs")
    return took


def sound(cluster: Cluster) -> None:
    """No node was drained, or taken for lost."""
    states = cluster.run(["sinfo", "-h", "-N", "-o", "%T %E"]).stdout
    assert not any(word in states for word in ("drain", "down", "*")), states


@pytest.mark.timeout(420)
def test_of_two_controllers_the_active_one_acts(pair: Cluster, record_property: Any) -> None:
    cluster = pair
    cluster.run(["sh", "-c", "rm -f ha-*"], user="ada")
    # A neighbour, without which the liars would find all the memory that they want.
    neighbour = submit(cluster, "g2", wrap=train(memory_mib=4000, smact=0.3, work_s=900))
    first = later(cluster, "first")
    for job in (neighbour, first):
        cluster.wait(job, "RUNNING")
    assert outcomes(cluster, first) == [None]
    saved(cluster, first)

    began = time.monotonic()
    for name in ("slurmctld", "colocd"):
        cluster.daemon("controller", "kill", name)
    asked = ["scontrol", "show", "job", str(first)]
    cluster.until(lambda: cluster.run(asked, check=False).returncode == 0, 40, "the backup leads")
    figures = {"take-over": time.monotonic() - began}
    cluster.until(lambda: leads(cluster, "backup"), 60, "the backup's colocd is the active one")
    figures["active"] = time.monotonic() - began
    assert cluster.job(first).state == "RUNNING"
    sound(cluster)
    figures["recovery"] = recovers(cluster, first, "first")
    story = str(cluster.coloc("explain", str(first), user="ada")["story"])
    assert "taken over from its mark" in story
    second = later(cluster, "second")  # decided by the backup's colocd
    cluster.wait(second, "RUNNING")

    began = time.monotonic()
    for name in ("slurmctld", "colocd"):
        cluster.daemon("controller", "start", name)
    cluster.until(lambda: leads(cluster, "controller", "backup"), 90, "the first acts again")
    figures["return"] = time.monotonic() - began
    sound(cluster)
    assert cluster.job(second).state == "RUNNING"
    figures["recovery after it"] = recovers(cluster, second, "second")
    assert [cluster.job(job).restarts for job in (first, second, neighbour)] == [2, 2, 0]
    assert cluster.job(neighbour).state == "RUNNING"
    # Its first run was the other one's affair: each colocd has a history of its own.

    def ended() -> bool:
        return outcomes(cluster, first)[-1:] == ["completed"]

    cluster.until(ended, 90, "its last run is told")
    print({name: round(took, 1) for name, took in figures.items()})
    record_property("seconds", figures)
