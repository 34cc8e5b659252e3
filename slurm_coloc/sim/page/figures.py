# SPDX-License-Identifier: Apache-2.0
"""The admin's page: what sharing GPUs would have done to the jobs of an accounting file.

The same jobs are played twice, on whole GPUs and shared, in the same queue with the same limits, so
that what the simulator simplifies is on both sides. What accounting does not record is assumed;
the page is made for two more assumptions to show what hangs on them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from slurm_coloc.core.place.interference import REFERENCE
from slurm_coloc.errors import UsageFault
from slurm_coloc.sim.assume import MEMORY, SMACT, Assumed, fill
from slurm_coloc.sim.outcome import Outcome, Piece, Record, quantile
from slurm_coloc.sim.past import Past
from slurm_coloc.sim.simulate import Experiment, play
from slurm_coloc.sim.trace import TraceJob

HOUR = 3600.0
#: Fewer GPUs count as enough where the mean wait stays within so much of that on whole GPUs (s).
SAME_WAIT_S = 60.0
#: The number of GPUs that would be enough is searched to this part of them.
STEP_RATIO = 0.05
#: With more runs it is not searched: each step is a simulation (a minute for 100,000 runs).
MOST_SEARCHED = 20_000


@dataclass(frozen=True, slots=True)
class Side:
    """One way of running the jobs. Waits and time from submission to end (jct) in seconds;
    ``gpu_hours``: in which a GPU had a job. ``could``, ``did``: jobs that may share by their memory
    and wish, and that had a neighbour; ``slowdown_*``: of those that did, time over time alone.
    ``whole_wait_s``: mean of the jobs that may not share. ``timeouts``: jobs that would have ended
    in time alone."""

    mean_wait_s: float
    p95_wait_s: float
    whole_wait_s: float | None
    mean_jct_s: float
    gpu_hours: float
    energy_kwh: float
    could: int
    did: int
    slowdown_median: float
    slowdown_p95: float
    oom: int
    timeouts: int


@dataclass(frozen=True, slots=True)
class OverTime:
    """(seconds from the first submission, number): GPUs with a job, and jobs that wait."""

    in_use: Sequence[tuple[float, float]]
    waiting: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Case:
    """The shared side under another assumption."""

    name: str
    assumed: Assumed
    side: Side


@dataclass(frozen=True, slots=True)
class Page:
    """All that the page says. ``recorded_wait_s``: mean wait in the file itself. ``gpus_needed``:
    GPUs with which sharing gives the waiting that all of them give without; None where not even
    all do, or where it was not searched (MOST_SEARCHED). ``figures``: the contract's, of the
    shared side. ``over_time``: of both sides, whole GPUs first."""

    jobs: int
    users: int
    first_s: float
    last_s: float
    gpus: int
    recorded_wait_s: float
    whole: Side
    shared: Side
    gpus_needed: int | None
    cases: Sequence[Case]
    figures: dict[str, float]
    over_time: tuple[OverTime, OverTime]

    @property
    def saved_hours(self) -> float:
        """GPU hours that sharing frees."""
        return self.whole.gpu_hours - self.shared.gpu_hours


def page(
    past: Past,
    assumed: Assumed,
    gpu_mib: int,
    shared: Experiment,
    whole: Experiment,
    step: Callable[[str], None] = lambda what: None,
) -> Page:
    """The page. ``shared`` and ``whole``: the two ways; their jobs are ``past`` filled under
    ``assumed``. ``step`` is called with what is simulated next."""
    step("whole GPUs")
    before, _, time_before = _side(whole)
    step("shared GPUs")
    after, figures, time_after = _side(shared)
    cases = []
    for name in ("low", "high"):
        step(f"{name} assumption")
        other = replace(assumed, smact=SMACT[name], memory=MEMORY[name])
        jobs = fill(past, other, shared.seed, gpu_mib).jobs
        cases.append(Case(name, other, _side(replace(shared, jobs=jobs))[0]))
    cases.insert(1, Case("as assumed", assumed, after))
    return Page(
        jobs=len(past.jobs),
        users=len({job.user for job in past.jobs}),
        first_s=min(job.submit_s for job in past.jobs),
        last_s=max(job.end_s for job in past.jobs),
        gpus=whole.machine.gpus,
        recorded_wait_s=fmean(job.start_s - job.submit_s for job in past.jobs),
        whole=before,
        shared=after,
        gpus_needed=_needed(shared, before.mean_wait_s, after.mean_wait_s, step),
        cases=cases,
        figures=figures,
        over_time=(time_before, time_after),
    )


def _side(experiment: Experiment) -> tuple[Side, dict[str, float], OverTime]:
    noted = replace(experiment, setting=replace(experiment.setting, record=True))
    outcome, bound = play(noted)
    figures = {**outcome.figures(), "bound_s": bound}
    # Instances of one GPU are that GPU here.
    gpu_of = [device.gpu for device in experiment.machine.devices]
    pieces = [replace(piece, slot=gpu_of[piece.slot]) for piece in outcome.pieces]
    waits = [(one.job.submit_s, one.start_s, 1.0) for one in outcome.records if one.start_s]
    over_time = OverTime(sums(stretches(pieces)), sums(waits))
    return _side_of(outcome, pieces, figures), figures, over_time


def _side_of(outcome: Outcome, pieces: Sequence[Piece], figures: dict[str, float]) -> Side:
    met = neighbours(pieces)
    records = [record for record in outcome.records if record.end_s is not None]
    slow = sorted(
        record.last_s / record.job.run_s
        for record in records
        if record.job.id in met and record.job.run_s > 0
    )
    apart = [_wait_s(record) for record in records if not _could(record)]
    return Side(
        mean_wait_s=figures["mean_wait_s"],
        p95_wait_s=figures["p95_wait_s"],
        whole_wait_s=fmean(apart) if apart else None,
        mean_jct_s=figures["mean_jct_s"],
        gpu_hours=busy_s(pieces) / HOUR,
        energy_kwh=figures["energy_mj"] / 3.6,
        could=sum(_could(record) for record in records),
        did=len(met),
        slowdown_median=median(slow) if slow else 1.0,
        slowdown_p95=quantile(slow, 0.95) if slow else 1.0,
        oom=int(figures["oom"]),
        timeouts=int(figures["timeouts_by_sharing"]),
    )


def _could(record: Record) -> bool:
    return record.job.coloc and (
        record.oom > 0 or (record.request is not None and record.request.share)
    )


def _wait_s(record: Record) -> float:
    return max(0.0, (record.end_s or 0.0) - record.job.submit_s - record.ran_s)


def busy_s(pieces: Iterable[Piece]) -> float:
    """Seconds in which a GPU had a job, over all GPUs."""
    return sum(end_s - start_s for start_s, end_s, _ in stretches(pieces))


def stretches(pieces: Iterable[Piece]) -> Iterator[tuple[float, float, float]]:
    """(from, to, 1) of each stretch in which a GPU had jobs, or of parts of one."""
    ends: dict[int, float] = {}
    for piece in sorted(pieces, key=lambda one: one.start_s):
        begin = max(piece.start_s, ends.get(piece.slot, piece.start_s))
        if piece.end_s > begin:
            yield begin, piece.end_s, 1.0
            ends[piece.slot] = piece.end_s


def sums(spans: Iterable[tuple[float, float, float]]) -> list[tuple[float, float]]:
    """(time, sum) of amounts that hold from one time to another: (from, to, amount)."""
    changes: list[tuple[float, float]] = []
    for start, end, amount in spans:
        changes += ((start, amount), (end, -amount))
    total, out = 0.0, [(0.0, 0.0)]
    for when, amount in sorted(changes):
        total += amount
        out.append((when, max(0.0, total)))
    return out


def neighbours(pieces: Iterable[Piece]) -> set[int]:
    """Jobs that had another beside them at some time."""
    met: set[int] = set()
    last: dict[int, Piece] = {}
    for piece in sorted(pieces, key=lambda one: one.start_s):
        before = last.get(piece.slot)
        if before is not None and before.end_s > piece.start_s:
            met |= {before.job_id, piece.job_id}
        if before is None or piece.end_s > before.end_s:
            last[piece.slot] = piece
    return met


def _needed(
    shared: Experiment, wait_s: float, now_s: float, step: Callable[[str], None]
) -> int | None:
    """The fewest GPUs, by bisection, with which jobs wait no longer than ``wait_s``. ``now_s``:
    their wait with all GPUs."""
    all_gpus = shared.machine.gpus
    if now_s > wait_s + SAME_WAIT_S or len(shared.jobs) > MOST_SEARCHED:
        return None
    enough, short = all_gpus, min(all_gpus - 1, _too_few(shared.jobs))
    while enough - short > max(1, round(STEP_RATIO * all_gpus)):
        middle = (enough + short) // 2
        step(f"{middle} GPUs")
        if _wait_with(shared, middle) <= wait_s + SAME_WAIT_S:
            enough = middle
        else:
            short = middle
    return enough


def _too_few(jobs: Sequence[TraceJob]) -> int:
    """GPUs that are not enough, surely: for the largest job, or for all work in the file's time."""
    span_s = max(job.submit_s + job.run_s for job in jobs)
    work_s = sum(job.work_s for job in jobs)
    return max(max(job.gpus for job in jobs) - 1, int(work_s / (REFERENCE.capacity * span_s)))


def _wait_with(shared: Experiment, gpus: int) -> float:
    devices = tuple(device for device in shared.machine.devices if device.gpu < gpus)
    try:
        outcome, _ = play(replace(shared, machine=replace(shared.machine, devices=devices)))
    except UsageFault:  # a job that fits nowhere any more
        return float("inf")
    return outcome.figures()["mean_wait_s"]
