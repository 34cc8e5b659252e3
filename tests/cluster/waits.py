# SPDX-License-Identifier: Apache-2.0
"""The same random jobs with sharing and without, side by side, and how long whole GPUs are waited
for in both.

A lane is two nodes of one lab in a partition each. The same jobs come to both at the same moment;
on the one those that may share ask with --coloc, on the other they ask for a GPU. So both meet the
same noise of the machine.
"""

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from statistics import fmean

from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import Desk, train, until

JOBS = 12
GPUS = 4  # of a node
LIMITS_MIN = (2, 5, 10, 30)  # far above the run times, as users' are
MODELS = (300, 900)  # million parameters: about 5 and 15 GiB
COLUMNS = "JobID:12,State:16,SubmitTime:24,StartTime:24,EndTime:24"


@dataclass(frozen=True)
class Job:
    """One job of a mix. ``share``: it may share its GPU; its ``model`` then."""

    after_s: float
    gpus: int
    share: bool
    run_s: float
    limit_min: int
    model: int
    smact: float


@dataclass(frozen=True)
class Waited:
    """A job that wanted whole GPUs: seconds that it waited with sharing and without."""

    gpus: int
    with_s: float
    without_s: float

    @property
    def more_s(self) -> float:
        return self.with_s - self.without_s


@dataclass(frozen=True)
class Result:
    """One mix: its seed, whole-GPU jobs, and how many of the others shared. ``slack_s``: how much
    longer than their programs the jobs that share with nobody took: this machine's noise.
    ``cost_s``: how much longer those that may share took beside others, hooks and all."""

    seed: str
    waited: tuple[Waited, ...]
    shared: int
    may_share: int
    makespans_s: tuple[float, float]
    slack_s: float
    cost_s: float

    @property
    def more_s(self) -> float:
        """Seconds that its whole-GPU jobs waited longer on average with sharing."""
        return fmean(one.more_s for one in self.waited)

    def __str__(self) -> str:
        both = fmean(one.with_s for one in self.waited), fmean(o.without_s for o in self.waited)
        worst = max(one.more_s for one in self.waited)
        return (
            f"seed {self.seed}: {len(self.waited)} whole-GPU jobs waited {both[0]:.1f} s with"
            f" sharing, {both[1]:.1f} s without; one at most {worst:+.0f} s;"
            f" {self.shared} of {self.may_share} shared, at {self.cost_s:.1f} s each; all over"
            f" after {self.makespans_s[0]:.0f} s and {self.makespans_s[1]:.0f} s"
        )


def mix(seed: str, scale: float = 1.0) -> list[Job]:
    """Jobs from a seed: two thirds may share, the others want one GPU or several. ``scale``: they
    come and run so many times slower."""
    draw = random.Random(seed)
    found, at_s = [], 0.0
    for number in range(JOBS):
        at_s += draw.expovariate(1 / 0.5)
        # One at least wants whole GPUs, and the first one may share.
        share = (draw.random() < 0.67 and number != JOBS // 2) or not number
        gpus = 1 if share else draw.choice((1, 1, 1, 2, 2, 4))
        found.append(
            Job(
                at_s * scale,
                gpus,
                share,
                draw.uniform(2, 8) * scale,
                draw.choice(LIMITS_MIN),
                draw.choice(MODELS),
                draw.uniform(0.1, 0.5),
            )
        )
    return found


def partitions(lanes: int) -> str:
    """Lines of slurm.conf: with1 on n1, without1 on n2, with2 on n3, ..."""
    lines = []
    for lane in range(lanes):
        for place, name in enumerate(("with", "without")):
            node = 2 * lane + place + 1
            lines.append(
                f"PartitionName={name}{lane + 1} Nodes=n{node} MaxTime=1-00:00:00"
                " DefMemPerCPU=100 PriorityJobFactor=1 State=UP"
            )
    return "\n".join(lines)


def play(lab: Lab, desks: dict[int, Desk], lane: int, seed: str, scale: float = 1.0) -> Result:
    """One mix on one lane, to its end. AssertionError where a job did not complete."""
    jobs = mix(seed, scale)
    arms: tuple[list[int], list[int]] = ([], [])
    began = time.monotonic()
    for job in jobs:
        time.sleep(max(0.0, began + job.after_s - time.monotonic()))
        for arm, name in zip(arms, ("with", "without"), strict=True):
            arm.append(_submit(lab, desks, job, f"{name}{lane + 1}", share=name == "with"))
    ends: dict[int, dict[str, str]] = {}

    def over() -> bool:
        ends.update(_shown(lab, lane))
        return all(ends.get(job, {}).get("State") == "COMPLETED" for arm in arms for job in arm)

    # Seldom: ten squeue a second take a tenth of a core from the hooks, on each lane.
    until(over, 200 + 100 * scale, f"all jobs of seed {seed} end: {ends}", each_s=1.0)
    waits = [[_wait(ends[job]) for job in arm] for arm in arms]
    spans = [_span([ends[job] for job in arm]) for arm in arms]
    whole = [number for number, job in enumerate(jobs) if not job.share]
    asks = [lab.job(arms[0][n]).get("TresPerNode", "") for n, job in enumerate(jobs) if job.share]
    lonely = [(arms[1][n], job) for n, job in enumerate(jobs)]
    lonely += [(arms[0][n], jobs[n]) for n in whole]
    slack = fmean(max(0.0, _ran(ends[job_id]) - job.run_s) for job_id, job in lonely)
    return Result(
        seed,
        tuple(Waited(jobs[n].gpus, waits[0][n], waits[1][n]) for n in whole),
        sum("shard" in text for text in asks),
        len(asks),
        (spans[0], spans[1]),
        slack,
        fmean(
            _ran(ends[arms[0][n]]) - _ran(ends[arms[1][n]])
            for n, job in enumerate(jobs)
            if job.share
        ),
    )


def play_all(
    lab: Lab, desks: dict[int, Desk], lanes: int, seeds: list[str], scale: float = 1.0
) -> Iterator[Result]:
    """Every seed, on all lanes at a time, in order."""
    free = list(range(lanes))

    def one(seed: str) -> Result:
        lane = free.pop()
        try:
            return play(lab, desks, lane, seed, scale)
        finally:
            free.append(lane)

    with ThreadPoolExecutor(lanes) as pool:
        yield from pool.map(one, seeds)


def _submit(lab: Lab, desks: dict[int, Desk], job: Job, partition: str, *, share: bool) -> int:
    args = [f"--partition={partition}", f"--gpus={job.gpus}", f"--time={job.limit_min}", "--mem=10"]
    if not job.share:
        return lab.sbatch(*args, wrap=f"sleep {job.run_s:.1f}", user=lab.users[1])
    me = desks[job.model]
    work = train(lab, memory_mib=job.model * 10, smact=round(job.smact, 2), ramp_s=0,
                 work_s=round(job.run_s, 1))  # fmt: skip
    if share:
        return me.submit(*args, wrap=work)
    return lab.sbatch(*args, wrap=work, user=me.user)


def _shown(lab: Lab, lane: int) -> dict[int, dict[str, str]]:
    names = f"--partition=with{lane + 1},without{lane + 1}"
    text = lab.run(["squeue", "--states=all", "-h", names, "-O", COLUMNS]).stdout
    heads = [column.split(":")[0] for column in COLUMNS.split(",")]
    rows = (dict(zip(heads, line.split(), strict=False)) for line in text.splitlines())
    return {int(row["JobID"]): row for row in rows if row}


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _wait(row: dict[str, str]) -> float:
    return (_at(row["StartTime"]) - _at(row["SubmitTime"])).total_seconds()


def _ran(row: dict[str, str]) -> float:
    return (_at(row["EndTime"]) - _at(row["StartTime"])).total_seconds()


def _span(rows: list[dict[str, str]]) -> float:
    first = min(_at(row["SubmitTime"]) for row in rows)
    return (max(_at(row["EndTime"]) for row in rows) - first).total_seconds()
