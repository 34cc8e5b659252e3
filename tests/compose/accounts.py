# SPDX-License-Identifier: Apache-2.0
"""Limits and prices of the Docker cluster for one test, and what sacct has of its jobs."""

import contextlib
import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tests.compose.cluster import EXAMPLES, Cluster, ClusterError
from tests.harness.answers import as_documented

SUMMARY = f"{EXAMPLES}/resnet50_torchinfo.txt"
# A price of 1000 a GPU on both cards: 39 x 25.641026 and 79 x 12.658228 are 1000 and a bit.
PRICES = {
    "a100": "GRES/gpu=1000,GRES/shard=25.641026",
    "h100": "GRES/gpu=1000,GRES/shard=12.658228",
}
# What a GPU costs in slurm.conf, where its type alone decides.
PRICE = {"a100": 39, "h100": 79}
# A whole GPU since colocd was started this moment, or the machine is too busy: not what is tested.
BUSY = ("slow-estimate", "not-prepared", "colocd_down")
OPEN = ("RUNNING", "PENDING", "SUSPENDED", "COMPLETING")
TABLE = ("JobID", "User", "Account", "Partition", "State", "Restarts", "ExitCode", "AllocTRES")


class Accounts:
    """Changes slurmdbd and the partitions for a test; ``restore`` takes all of it back."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._qos: list[str] = []
        self._parts = {name: self._part(name) for name in ("main", "a100", "h100")}

    def _part(self, name: str) -> str:
        text = self.cluster.run(["scontrol", "show", "partition", name, "-o"]).stdout
        words = dict(word.split("=", 1) for word in text.split() if "=" in word)
        return f"Nodes={words['Nodes']} TRESBillingWeights={words['TRESBillingWeights']}"

    def sacctmgr(self, *words: str, check: bool = True) -> str:
        """`sacctmgr -i` as root on the controller."""
        return self.cluster.run(["sacctmgr", "-iQ", *words], on="controller", check=check).stdout

    def qos(self, name: str, *settings: str) -> None:
        """A QOS with these settings that both users may use."""
        self._qos.append(name)
        self.cluster.until(lambda: self._lent(name, settings), 60, f"slurmctld knows QOS {name}")

    def _lent(self, name: str, settings: Iterable[str]) -> bool:
        """Make it and let the users have it. slurmdbd sends a change to slurmctld once: where that
        was too busy to take it, all has to be made anew."""
        self.sacctmgr("delete", "qos", name, check=False)
        self.sacctmgr("add", "qos", name)
        self.sacctmgr("modify", "qos", name, "set", *settings)
        for user in self.cluster.users:
            self.sacctmgr("modify", "user", user, "set", f"qos+={name}")
        with contextlib.suppress(ClusterError):
            self.cluster.until(lambda: self._may_use(name), 5)
            return True
        return False

    def _may_use(self, name: str) -> bool:
        """Whether slurmctld has heard from slurmdbd that the users may submit with this QOS."""
        words = ["sbatch", "--test-only", f"--qos={name}", "-p", "main", "--wrap=true"]
        return all(
            "Invalid qos" not in self.cluster.run(words, user=user, check=False).stderr
            for user in self.cluster.users
        )

    def set(self, name: str, *settings: str) -> None:
        """Change a QOS."""
        self.sacctmgr("modify", "qos", name, "set", *settings)

    def one_price(self) -> None:
        """A GPU costs 1000 in every partition: limits on billing count GPUs. main gets g1 alone,
        since one price for two cards needs a partition for each."""
        self.partition("main", f"Nodes=g1 TRESBillingWeights={PRICES['a100']}")
        for name, weights in PRICES.items():
            self.partition(name, f"TRESBillingWeights={weights}")

    def partition(self, name: str, settings: str) -> None:
        """`scontrol update` of a partition, which Slurm forgets when it is configured again."""
        words = ["scontrol", "update", f"PartitionName={name}", *settings.split()]
        self.cluster.run(words, on="controller")

    def limits(self, *options: str) -> dict[str, Any]:
        """`coloc limits --json`, which ends with 1 where something is missing."""
        words = ["coloc", "limits", "--json", *options]
        done = self.cluster.run(words, on="controller", check=False)
        return as_documented(["limits"], json.loads(done.stdout))

    def restore(self) -> None:
        """As it was before the test."""
        self.cluster.clear()
        for name, settings in self._parts.items():
            self.partition(name, settings)
        for name in self._qos:
            self.sacctmgr("delete", "qos", name, check=False)


def mark(cluster: Cluster, job: int) -> str:
    """What colocd wrote into a job's AdminComment."""
    words = ["squeue", "-h", "-t", "all", "-j", str(job), "-O", "admin_comment:200"]
    return cluster.run(words, on="controller").stdout.strip()


def share(
    cluster: Cluster, *args: str, user: str = "ada", memory_mib: int = 3000, work_s: float = 120
) -> int:
    """A --coloc job of about a fifth of an A100, on the a100 partition; its id."""
    words = (f"--coloc={SUMMARY}", "--coloc-batch-size=24", "-p", "a100", "--gres=gpu:1", *args)
    wrap = f"emu-train --memory-mib {memory_mib} --smact 0.2 --work-s {work_s:g}"

    def submitted() -> int:
        job = cluster.sbatch(*words, wrap=wrap, user=user)
        if not any(reason in mark(cluster, job) for reason in BUSY):
            return job
        cluster.run(["scancel", str(job)], on="controller")
        return 0

    found = cluster.until(submitted, 60, "colocd decides in time")
    assert isinstance(found, int)
    return found


def tres(text: str) -> dict[str, int]:
    """gres and billing of a TRES string."""
    pairs = (item.partition("=") for item in text.split(","))
    return {name: int(count) for name, _, count in pairs if count.isdigit()}


def table(cluster: Cluster, since: str, columns: Iterable[str] = TABLE) -> str:
    """What sacct has of everybody's jobs, a line a run: runs before a requeue are REQUEUED (FAILED
    on 26.05). ``since``: sacct's own words for a time."""
    words = ["sacct", "-a", "-X", "-D", "-S", since, "-o"]
    wide = {"AllocTRES": "%64", "State": "%18"}
    form = ",".join(f"{name}{wide.get(name, '')}" for name in columns)
    return cluster.run([*words, form], on="controller").stdout


def faults(cluster: Cluster, since: str) -> list[str]:
    """What is wrong in sacct: a job that is there twice, one that never ended, a wrong price."""
    columns = ("JobID", "Partition", "State", "Restarts", "AllocTRES")
    words = ["sacct", "-a", "-X", "-n", "-P", "-S", since, "-o", ",".join(columns)]
    lines = cluster.run(words, on="controller").stdout.splitlines()
    rows = [dict(zip(columns, line.split("|"), strict=True)) for line in lines]
    found = [f"{row['JobID']}: {row['State']}" for row in rows if row["State"] in OPEN]
    counted = Counter(row["JobID"] for row in rows)
    found += [f"{job}: {times} lines" for job, times in counted.items() if times > 1]
    for row in rows:
        counts = tres(row["AllocTRES"])
        price = PRICE.get(row["Partition"], 0)
        if not price or not counts.get("billing"):
            continue
        wanted = {price * counts.get("gres/gpu", 0) + counts.get("gres/shard", 0)}
        wanted |= {1000 * counts.get("gres/gpu", 0) + int(counts.get("gres/shard", 0) * one)
                   for one in (25.641026, 12.658228)}  # fmt: skip
        # Slurm bills a requeued job as what it asked for first (docs/adr/0005).
        if counts["billing"] not in wanted and row["Restarts"] == "0":
            found.append(f"{row['JobID']}: {row['AllocTRES']}, not {wanted}")
    return found
