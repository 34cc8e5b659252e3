# SPDX-License-Identifier: Apache-2.0
"""A burst of submissions from the login node, measured: for the test of it and for `make bench`."""

import json
import re
import statistics
from collections.abc import Container, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tests.cluster.jobs import mlp_summary
from tests.compose.cluster import Cluster

# Prints an id and the wall time of its sbatch in microseconds, a line a job.
SUBMIT = """
for ((i = 0; i < $1; i++)); do
  began=${EPOCHREALTIME/./}
  id=$(sbatch --parsable --coloc=burst.txt --gpus=1 --mem=10 -o /dev/null \
    --wrap='sleep 900' 2>burst.said) || { cat burst.said >&2; exit 1; }
  echo "$id $((${EPOCHREALTIME/./} - began))"
done
"""
READ = """
import json, sqlite3
db = sqlite3.connect("file:/var/lib/slurm-coloc/coloc.db?mode=ro", uri=True)
print(json.dumps(db.execute("SELECT id, job_id FROM decisions WHERE bound = 1").fetchall()))
"""
HOOK = re.compile(r"coloc: uid=\d+ decision=(\w+) action=\w+ reason=[\w.-]+ ms=([\d.]+)")
#: the hook's id where colocd did not answer in time; such a job has a whole GPU
NO_DECISION = "000000000000"
MARK = re.compile(r"coloc:1:([0-9a-f]{12}):")


@dataclass(frozen=True)
class Burst:
    """What came of it. ``seconds``: from the first sbatch to the end of the last."""

    ids: tuple[int, ...]
    seconds: float
    sbatch_ms: tuple[float, ...]

    def told(self, cluster: Cluster, hook_ms: Sequence[float]) -> str:
        """One line of figures."""
        slow = sorted(self.sbatch_ms)
        line = (
            f"Slurm {cluster.version}: {len(self.ids)} sbatch --coloc by {len(cluster.users)} users"
            f" in {self.seconds:.1f} s, {len(self.ids) / self.seconds:.0f} a second; sbatch median"
            f" {statistics.median(slow):.1f} ms, p99 {slow[len(slow) * 99 // 100]:.1f},"
            f" worst {slow[-1]:.0f}"
        )
        if hook_ms:
            hook = sorted(hook_ms)
            line += f"; hook median {statistics.median(hook):.2f} ms, worst {hook[-1]:.0f}"
        return line


def burst(cluster: Cluster, each: int) -> Burst:
    """``each`` submissions by every user at the same time, as fast as sbatch can."""
    for user in cluster.users:
        cluster.put(f"/home/{user}/burst.txt", mlp_summary(60), user=user)

    def submit(user: str) -> list[list[int]]:
        done = cluster.run(["bash", "-c", SUBMIT, "burst", str(each)], user=user, timeout=600)
        return [[int(word) for word in line.split()] for line in done.stdout.splitlines()]

    with ThreadPoolExecutor(len(cluster.users)) as pool:
        parts = list(pool.map(submit, cluster.users))
    lines = [line for part in parts for line in part]
    # The users submit side by side: the slower one's sum is how long it took.
    seconds = max(sum(took for _, took in part) for part in parts) / 1e6
    return Burst(tuple(i for i, _ in lines), seconds, tuple(took / 1000 for _, took in lines))


def decisions(cluster: Cluster) -> dict[str, int]:
    """Decisions in colocd's database that have found their job: id of the decision to the job's."""
    words = ["/opt/slurm-coloc/bin/python", "-c", READ]
    return dict(json.loads(cluster.run(words, on="controller").stdout))


def hook_ms(cluster: Cluster, wanted: Container[str]) -> list[float]:
    """What the hook's own question to colocd took, for these decisions, in milliseconds."""
    log = cluster.run(["cat", "/var/log/slurm/slurmctld.log"], on="controller").stdout
    return [float(ms) for decision, ms in HOOK.findall(log) if decision in wanted]


@dataclass(frozen=True)
class Queued:
    """A job or an array task in the queue; ``decision`` as AdminComment has it."""

    job: int
    decision: str
    state: str
    reason: str
    tres: str


def queue(cluster: Cluster) -> list[Queued]:
    """All that is in the queue, each task of an array for itself."""
    words = ["squeue", "--all", "--array", "-h", "-O"]
    text = cluster.run(
        [*words, "ArrayJobID:12,State:16,Reason:40,tres-per-node:40"], on="controller"
    ).stdout
    comments: dict[int, str] = {}
    for job in json.loads(cluster.run(["squeue", "--all", "--json"], on="controller").stdout)[
        "jobs"
    ]:
        mark = MARK.search(job["admin_comment"])
        array = job["array_job_id"]
        first = array["number"] if isinstance(array, dict) else array
        comments[first or job["job_id"]] = mark[1] if mark else ""
    found = []
    for line in text.splitlines():
        job_id, state, reason, tres = line[:12], line[12:28], line[28:68], line[68:]
        decision = comments.get(int(job_id), "")
        found.append(Queued(int(job_id), decision, state.strip(), reason.strip(), tres.strip()))
    return found
