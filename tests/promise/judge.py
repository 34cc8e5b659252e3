# SPDX-License-Identifier: Apache-2.0
"""Whether the promises held, by what the witness saw. Pure: no I/O, no clock."""

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.promise.plan import Kind
from tests.promise.witness import Process, Second

#: a process may hold one CUDA context beyond the share: estimate.context_mib of the default
#: configuration. An overrun is more than that.
CONTEXT_MIB = 1900
#: seconds in a row that make an overrun; fewer are a sample of a job that comes or goes
IN_A_ROW = 3
#: an overrun is told within so many seconds
TOLD_S = 15.0
#: the witness's look may be so old when a job runs out of memory
NEAR_S = 3.0


@dataclass(frozen=True)
class EndedRun:
    """One run of a job as colocd tells it (`coloc explain --json`)."""

    restart: int
    start_s: float
    end_s: float
    outcome: str
    blame: str
    culprit: int | None
    share_mib: int
    method: str


@dataclass
class Job:
    """One job at the end. ``truth_mib``: what its training takes; ``stays``: begin and end by its
    own diary; ``done``: how often its training said that it had completed; ``events``: what colocd
    tells of it (time, kind); ``put_back_s``: when its user had requeued it."""

    job: int
    user: str
    kind: Kind
    coloc: bool
    truth_mib: int
    state: str
    stays: list[tuple[float, float]] = field(default_factory=list)
    done: int = 0
    runs: list[EndedRun] = field(default_factory=list)
    events: list[tuple[float, str]] = field(default_factory=list)
    while_off: bool = False
    put_back_s: float | None = None


@dataclass
class Verdict:
    """One promise: how often it was looked at, and what broke it."""

    promise: str
    seen: int = 0
    broken: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return self.seen > 0 and not self.broken


Jobs = dict[int, Job]


def judge(seconds: Sequence[Second], jobs: Jobs) -> list[Verdict]:
    """All promises."""
    return [
        memory(seconds, jobs),
        told(seconds, jobs),
        strangers(seconds, jobs),
        whole(seconds),
        blame(seconds, jobs),
        lost(jobs),
        twice(jobs),
        off(jobs),
    ]


def by_gpu(second: Second) -> dict[str, list[Process]]:
    """The processes of each GPU that has any."""
    found: dict[str, list[Process]] = defaultdict(list)
    for one in second.processes:
        found[one.gpu].append(one)
    return found


def over_mib(second: Second, job: int) -> int:
    """MiB that a running share holds above what it was promised and its contexts; 0 for others."""
    promise = second.promised.get(job)
    if promise is None or not promise.mib:
        return 0
    worst = 0
    for processes in by_gpu(second).values():
        mine = [one for one in processes if one.job == job]
        over = sum(one.mib for one in mine) - promise.mib - CONTEXT_MIB * len(mine)
        worst = max(worst, over)
    return worst


def overruns(seconds: Sequence[Second]) -> dict[int, list[float]]:
    """The times at which a job's overrun was clear: IN_A_ROW looks in a row. By job."""
    row: dict[int, int] = defaultdict(int)
    found: dict[int, list[float]] = defaultdict(list)
    for second in seconds:
        for job in {one.job for one in second.processes} | set(row):
            row[job] = row[job] + 1 if over_mib(second, job) > 0 else 0
            if row[job] == IN_A_ROW:
                found[job].append(second.at_s)
    return found


def memory(seconds: Sequence[Second], jobs: Jobs) -> Verdict:
    """Every job but those that take their fence off stays within its share, at every second."""
    line = Verdict("memory: a job holds at most its share, at every second (by process)")
    for second in seconds:
        line.seen += len({one.job for one in second.processes if one.job in second.promised})
    for number in overruns(seconds):
        job = jobs.get(number)
        if job is None or job.kind is not Kind.UNFENCED:
            line.broken.append(f"job {number} ({job.kind if job else 'unknown'}) was above it")
    return line


def told(seconds: Sequence[Second], jobs: Jobs) -> Verdict:
    """Every overrun is in what colocd tells of the job, within TOLD_S."""
    line = Verdict("overrun: told within seconds in what colocd tells of the job")
    for number, times in overruns(seconds).items():
        line.seen += 1
        events = jobs[number].events if number in jobs else []
        at = [at_s for at_s, kind in events if kind == "overrun"]
        late = [t for t in times if not any(t - TOLD_S <= a <= t + TOLD_S for a in at)]
        if late:
            line.broken.append(f"job {number}: nothing of it was told")
    return line


def strangers(seconds: Sequence[Second], jobs: Jobs) -> Verdict:
    """Two users are never on one GPU."""
    line = Verdict("users: no GPU serves two users at once")
    pairs: set[tuple[str, tuple[int, ...]]] = set()
    for second in seconds:
        for gpu, processes in by_gpu(second).items():
            line.seen += 1
            here = [one for one in processes if one.job in second.promised]
            if len({one.uid for one in here}) > 1:
                pairs.add((gpu, tuple(sorted({one.job for one in here}))))
    line.broken = [f"{gpu}: jobs {', '.join(map(str, found))}" for gpu, found in sorted(pairs)]
    return line


def whole(seconds: Sequence[Second]) -> Verdict:
    """Who has a whole GPU has it alone."""
    line = Verdict("whole GPUs: a job that has one shares it with nobody")
    pairs: set[tuple[str, tuple[int, ...]]] = set()
    for second in seconds:
        for gpu, processes in by_gpu(second).items():
            here = {one.job for one in processes if one.job in second.promised}
            alone = {job for job in here if not second.promised[job].mib}
            line.seen += bool(alone)
            if alone and len(here) > 1:
                pairs.add((gpu, tuple(sorted(here))))
    line.broken = [f"{gpu}: jobs {', '.join(map(str, found))}" for gpu, found in sorted(pairs)]
    return line


def culprit(seconds: Sequence[Second], job: Job, run: EndedRun) -> tuple[str, int | None]:
    """Who held too much when ``run`` ended out of memory: "self", or "neighbour" and its job."""
    if job.truth_mib > run.share_mib > 0:
        return "self", None
    near = [one for one in seconds if run.end_s - NEAR_S - 3 <= one.at_s <= run.end_s + 1]
    worst, who = 0, None
    for second in near:
        gpus = {one.gpu for one in second.processes if one.job == job.job}
        for other in {one.job for one in second.processes if one.gpu in gpus} - {job.job}:
            if (over := over_mib(second, other)) > worst:
                worst, who = over, other
    return ("neighbour", who) if who is not None else ("self", None)


def blame(seconds: Sequence[Second], jobs: Jobs) -> Verdict:
    """Every out-of-memory is blamed on who held too much."""
    line = Verdict("blame: each GPU out-of-memory is blamed on who held too much")
    for job in jobs.values():
        for run in job.runs:
            if run.outcome != "oom-gpu":
                continue
            line.seen += 1
            who, other = culprit(seconds, job, run)
            if run.blame != who or (who == "neighbour" and run.culprit not in (None, other)):
                line.broken.append(
                    f"job {job.job}.{run.restart}: {run.blame} {run.culprit or ''}, but it was"
                    f" {who} {other or ''}"
                )
    return line


def lost(jobs: Jobs) -> Verdict:
    """No job is lost: each ends as its kind must."""
    line = Verdict("lost: every job ends, and an honest one completes")
    ends = {
        Kind.CANCELLED: ("CANCELLED", "COMPLETED"),
        Kind.FAILING: ("FAILED",),
        Kind.UNFENCED: ("COMPLETED", "FAILED"),
    }
    for job in jobs.values():
        line.seen += 1
        if job.state not in ends.get(job.kind, ("COMPLETED",)):
            line.broken.append(f"job {job.job} ({job.kind}): {job.state}")
    return line


def twice(jobs: Jobs) -> Verdict:
    """No job runs twice at once, and none completes twice but at its user's wish: put back by him
    after it had completed."""
    line = Verdict("twice: no job runs twice at once or completes twice")
    for job in jobs.values():
        line.seen += bool(job.stays)
        stays = sorted(job.stays)
        if any(later[0] < before[1] for before, later in itertools.pairwise(stays)):
            line.broken.append(f"job {job.job}: two runs at once")
        wished = job.put_back_s is not None and stays and stays[0][1] < job.put_back_s
        if job.done > (2 if wished else 1):
            line.broken.append(f"job {job.job}: completed {job.done} times")
    return line


def off(jobs: Jobs) -> Verdict:
    """While slurm-coloc is switched off a --coloc job goes as it was submitted."""
    line = Verdict("off: what is submitted while it is switched off is not changed")
    for job in jobs.values():
        if job.while_off and job.coloc:
            line.seen += 1
            if any(run.share_mib for run in job.runs):
                line.broken.append(f"job {job.job}: it had a share")
    return line
