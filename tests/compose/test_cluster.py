# SPDX-License-Identifier: Apache-2.0
"""The cluster itself: the machines, their GPUs, the accounts, and how little it may."""

import json
import re
import subprocess

import pytest

from tests.compose.cluster import Cluster

CARDS = {"g1": (4, 39, "A100-SXM4-40GB"), "g2": (2, 79, "H100")}


def test_slurm_knows_the_cards_that_the_nodes_have(cluster: Cluster) -> None:
    for node, (gpus, shards, name) in CARDS.items():
        cards = cluster.run(["nvidia-smi", "-L"], on=node).stdout.splitlines()
        assert len(cards) == gpus and all(name in card for card in cards), cards
        text = cluster.run(["scontrol", "show", "node", node]).stdout
        gres = re.search(r"Gres=(\S+)", text)
        assert gres, text
        assert re.search(rf"gpu:\w+:{gpus}(,|$)", gres[1])
        assert re.search(rf"shard:(\w+:)?{gpus * shards}$", gres[1])


def test_nothing_is_privileged(cluster: Cluster) -> None:
    for machine in ("db", "dbd", "controller", "g1", "g2", "login"):
        words = ["docker", "inspect", cluster.container(machine)]
        told = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)[0]
        host = told["HostConfig"]
        assert not host["Privileged"], machine
        assert not host["CapAdd"] and not host["Devices"] and not host["PortBindings"], machine
        assert host["NetworkMode"] != "host" and not host["PidMode"], machine


def test_the_people_are_the_same_everywhere(cluster: Cluster) -> None:
    for user in cluster.users:
        ids = {cluster.run(["id", user], on=m).stdout for m in ("login", "controller", "g1", "g2")}
        assert len(ids) == 1, ids
        words = ["sacctmgr", "-n", "-P", "show", "assoc", f"user={user}", "format=account"]
        assert cluster.run(words, on="controller").stdout.split() == [cluster.accounts[user]]
        cluster.put(f"/home/{user}/mark", user, user=user)
        assert cluster.run(["cat", f"/home/{user}/mark"], user=user, on="g2").stdout == user
    assert cluster.run(["cat", "/home/ada/mark"], user="ben", check=False).returncode != 0


def test_a_colocd_that_hangs_is_not_well(cluster: Cluster) -> None:
    healthy = ["/usr/local/lib/cluster/healthy"]
    pid = cluster.run(["daemon", "status", "colocd"], on="controller").stdout.strip()
    cluster.run(["kill", "-STOP", pid], on="controller")
    try:
        done = cluster.run(healthy, on="controller", check=False)
    finally:
        cluster.run(["kill", "-CONT", pid], on="controller")
    assert done.returncode == 1 and "colocd does not answer" in done.stdout
    cluster.run(healthy, on="controller")


def test_a_user_without_an_account_is_refused(cluster: Cluster) -> None:
    done = cluster.run(["sbatch", "--wrap=true"], user="daemon", check=False, env={"HOME": "/"})
    assert done.returncode != 0


@pytest.mark.parametrize("node", ["g1", "g2"])
def test_a_plain_job_runs_and_is_accounted(cluster: Cluster, node: str) -> None:
    job = cluster.sbatch("-w", node, "--gres=gpu:1", wrap="hostname; nvidia-smi -L")
    cluster.wait(job)
    assert cluster.output(job).split()[0] == node
    [run] = cluster.sacct(job, "State", "Account", "AllocTRES")
    assert (run["State"], run["Account"]) == ("COMPLETED", "physics")
    assert "gres/gpu=1" in run["AllocTRES"]


def test_doctor_finds_nothing_wrong(cluster: Cluster) -> None:
    done = cluster.run(["coloc", "doctor"], on="controller", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
