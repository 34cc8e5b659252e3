# SPDX-License-Identifier: Apache-2.0
"""The sums of a report: what sharing saved in GPU hours and waiting, what it cost in speed, how
jobs ended and whose doing it was, and how near estimates came.

GPU hours saved are the hours of all runs with a share, less the hours in which their GPUs were in
use by one of them. A run takes longer beside others than alone, so the hours that these runs would
have needed alone are told too, where the activities are known (core/place/interference).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.core.place.interference import FITTED
from slurm_coloc.core.report.past import PastRun

DAY_S = 86400.0
NOT_RUNS = ("put-back",)  # outcomes of what never began
#: ends of the bins of slowdowns (times as long as alone)
SLOWER = (1.05, 1.1, 1.25, 1.5, 2.0, 3.0)


@dataclass(slots=True)
class Group:
    """Runs that have something in common. Hours are GPU hours."""

    name: str
    runs: int = 0
    shared: int = 0
    completed: int = 0
    oom: int = 0
    hours: float = 0.0
    shared_hours: float = 0.0
    saved_hours: float = 0.0


@dataclass(slots=True)
class Day:
    """What ended on a day (UTC); ``at_s``: its begin."""

    at_s: float
    shared: int = 0
    whole: int = 0
    oom: int = 0
    saved_hours: float = 0.0


@dataclass(slots=True)
class Report:
    """``alone_hours``: GPU hours that the ``predicted`` runs with a share would have taken alone,
    who took ``predicted_hours``; ``waits_s``: median wait of runs with a share and of others, None
    without one; ``sooner_s``: sum of what runs began before the jobs that were there had left;
    ``ratios``: peak over estimate of each run where both are known; ``pairs``: estimate and peak
    (MiB) of these runs; ``over_upper``: how many peaks were above the upper bound; ``idle``: runs
    that held their GPUs without activity, those with the most GPU hours first."""

    runs: int = 0
    shared: int = 0
    gpus: int = 0
    hours: float = 0.0
    shared_hours: float = 0.0
    used_hours: float = 0.0
    predicted: int = 0
    predicted_hours: float = 0.0
    alone_hours: float = 0.0
    waits_s: tuple[float | None, float | None] = (None, None)
    sooner_s: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    ooms: Counter[str] = field(default_factory=Counter)
    put_back: int = 0
    idle: list[PastRun] = field(default_factory=list)
    slower: list[int] = field(default_factory=lambda: [0] * (len(SLOWER) + 1))
    ratios: list[float] = field(default_factory=list)
    pairs: list[tuple[int, int]] = field(default_factory=list)
    over_upper: int = 0
    days: list[Day] = field(default_factory=list)
    partitions: list[Group] = field(default_factory=list)
    accounts: list[Group] = field(default_factory=list)
    users: list[Group] = field(default_factory=list)

    @property
    def saved_hours(self) -> float:
        """GPU hours that sharing saved at the speed that the runs had."""
        return max(0.0, self.shared_hours - self.used_hours)


def report(runs: Sequence[PastRun], user_name: Callable[[int], str] = str) -> Report:
    """Sum up ``runs``, in any order."""
    found = Report()
    begun = [run for run in runs if run.outcome not in NOT_RUNS and run.start_s is not None]
    found.put_back = sum(run.outcome in NOT_RUNS for run in runs)
    found.runs, found.shared = len(begun), sum(run.shared for run in begun)
    found.hours = sum(run.hours for run in begun)
    found.idle = sorted((run for run in begun if run.idle), key=lambda run: -run.hours)
    found.gpus = len({uuid for run in begun for uuid in run.gpus})
    for run in begun:
        found.outcomes[run.outcome] += 1
        if run.outcome in ("oom-gpu", "overrun"):
            found.ooms[run.blame or "unknown"] += 1
    saved = _on_gpus(found, begun)
    _waits(found, begun)
    _estimates(found, begun)
    _days(found, begun, saved)
    found.partitions = _groups(begun, saved, lambda run: run.partition or "-")
    found.accounts = _groups(begun, saved, lambda run: run.account or "-")
    found.users = _groups(begun, saved, lambda run: user_name(run.uid))
    return found


def _on_gpus(found: Report, begun: Sequence[PastRun]) -> dict[int, float]:
    """What runs took of the GPUs that they shared; the hours that each saved, by its place in
    ``begun``. Of an hour with n runs on a GPU each has saved 1 - 1/n."""
    saved: dict[int, float] = defaultdict(float)
    alone: dict[int, float] = defaultdict(float)  # hours of its work alone
    unknown: set[int] = set()
    on: dict[str, list[int]] = defaultdict(list)
    for place, run in enumerate(begun):
        if run.shared:
            found.shared_hours += run.hours
            if not run.gpus:  # nobody knows beside whom it was: nothing is claimed
                found.used_hours += run.hours
        for uuid in run.gpus if run.shared else ():
            on[uuid].append(place)
    for there in on.values():
        for hours, running in _stretches(begun, there):
            found.used_hours += hours
            for place in running:
                saved[place] += hours * (1 - 1 / len(running))
            speeds = _speeds([begun[place] for place in running])
            if speeds is None:
                unknown.update(running)
            else:
                for place, speed in zip(running, speeds, strict=True):
                    alone[place] += hours * speed
        found.sooner_s += _sooner_s([begun[place] for place in there])
    for place, hours in alone.items():
        if place not in unknown and hours > 0:
            found.predicted += 1
            found.predicted_hours += begun[place].hours
            found.alone_hours += hours
            found.slower[sum(begun[place].hours / hours > end for end in SLOWER)] += 1
    return saved


def _stretches(
    begun: Sequence[PastRun], there: Iterable[int]
) -> Iterator[tuple[float, tuple[int, ...]]]:
    """Hours in which the same runs were on a GPU, with their places; none where nobody was."""
    edges = []
    for place in there:
        run = begun[place]
        if run.end_s > run.began_s:
            edges += [(run.began_s, place), (run.end_s, place)]
    now: set[int] = set()
    before_s = 0.0
    for at_s, place in sorted(edges):
        if now and at_s > before_s:
            yield (at_s - before_s) / 3600, tuple(now)
        now ^= {place}
        before_s = at_s


def _speeds(running: Sequence[PastRun]) -> Sequence[float] | None:
    """The speeds (1 = alone) of runs that are on a GPU together; None where an activity is not
    known."""
    known = [run.smact for run in running if run.smact is not None]
    if len(running) == 1:
        return [1.0]
    if len(known) < len(running):
        return None
    method = "mps" if all(run.method == "mps" for run in running) else "streams"
    return FITTED.speeds([Activity(smact) for smact in known], method)


def _sooner_s(there: Iterable[PastRun]) -> float:
    """Seconds by which the runs of a GPU began before those that were there had left."""
    total_s, until_s = 0.0, 0.0
    for run in sorted(there, key=lambda one: one.began_s):
        total_s += max(0.0, until_s - run.began_s)
        until_s = max(until_s, run.end_s)
    return total_s


def _waits(found: Report, begun: Iterable[PastRun]) -> None:
    waits: dict[bool, list[float]] = {True: [], False: []}
    for run in begun:
        if run.submit_s is not None:
            waits[run.shared].append(max(0.0, run.began_s - run.submit_s))
    of_shared, of_others = (median(waits[kind]) if waits[kind] else None for kind in (True, False))
    found.waits_s = of_shared, of_others


def _estimates(found: Report, begun: Iterable[PastRun]) -> None:
    for run in begun:
        if run.peak_mib and run.memory_mib:
            found.ratios.append(run.peak_mib / run.memory_mib)
            found.pairs.append((run.memory_mib, run.peak_mib))
            found.over_upper += run.upper_mib is not None and run.peak_mib > run.upper_mib


def _days(found: Report, begun: Sequence[PastRun], saved: dict[int, float]) -> None:
    days: dict[int, Day] = {}
    for place, run in enumerate(begun):
        number = int(run.end_s // DAY_S)
        day = days.setdefault(number, Day(number * DAY_S))
        day.shared += run.shared
        day.whole += not run.shared
        day.oom += run.outcome == "oom-gpu"
        day.saved_hours += saved.get(place, 0.0)
    if days:
        every = range(min(days), max(days) + 1)
        found.days = [days.get(number, Day(number * DAY_S)) for number in every]


def _groups(
    begun: Sequence[PastRun], saved: dict[int, float], name_of: Callable[[PastRun], str]
) -> list[Group]:
    """By name, those with the most GPU hours first."""
    groups: dict[str, Group] = {}
    for place, run in enumerate(begun):
        name = name_of(run)
        group = groups.setdefault(name, Group(name))
        group.runs += 1
        group.shared += run.shared
        group.completed += run.outcome == "completed"
        group.oom += run.outcome == "oom-gpu"
        group.hours += run.hours
        group.shared_hours += run.hours if run.shared else 0.0
        group.saved_hours += saved.get(place, 0.0)
    return sorted(groups.values(), key=lambda group: -group.hours)
