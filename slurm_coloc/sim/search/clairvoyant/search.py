# SPDX-License-Identifier: Apache-2.0
"""The best schedule that a bounded search finds when everything is known beforehand.

What it finds exists: it is played through the engine that policies are judged with, so the optimum
under the same model lies between the lower bound and it. That it is the optimum is not proven.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from slurm_coloc.core.draw import Draw
from slurm_coloc.core.place.placing import Conditions, Start, View
from slurm_coloc.errors import UsageFault
from slurm_coloc.planning.schedules.anneal import Best, anneal, times
from slurm_coloc.planning.schedules.native import NOT_BUILT, built
from slurm_coloc.planning.schedules.problem import Spot
from slurm_coloc.sim.engine import Simulation
from slurm_coloc.sim.machine import Machine
from slurm_coloc.sim.outcome import Outcome
from slurm_coloc.sim.search.clairvoyant.model import Model
from slurm_coloc.sim.search.clairvoyant.starts import starts, truths
from slurm_coloc.sim.setting import Pace, Setting
from slurm_coloc.sim.trace import TraceJob

#: ratio by which the engine's times may differ from the search's
AGREE = 1e-6
#: An event of the engine and a planned time are one when they differ by no more than this ratio;
#: both come from the same sums in another order.
SAME = 1e-9


@dataclass(frozen=True, slots=True)
class Planned:
    """One job of a schedule: on which slots, and from when to when (s)."""

    job_id: int
    slots: tuple[int, ...]
    start_s: float
    end_s: float


class Follow:
    """A policy that starts each job when and where a schedule says."""

    name = "clairvoyant"

    def __init__(self, schedule: Sequence[Planned]) -> None:
        self._planned = {one.job_id: one for one in schedule}

    def next(self, view: View) -> Start | None:
        """As the protocol says."""
        now_s = view.now_s + SAME * (1.0 + view.now_s)
        due = [request for request in view.queue if self._planned[request.id].start_s <= now_s]
        if not due:
            return None
        request = min(due, key=lambda request: (self._planned[request.id].start_s, request.id))
        return Start(request, tuple(view.slots[slot] for slot in self._planned[request.id].slots))


@dataclass(frozen=True, slots=True)
class Found:
    """A schedule. ``outcome``: of its play through the engine. ``evaluations``: schedules that
    were tried for it."""

    schedule: tuple[Planned, ...]
    outcome: Outcome
    evaluations: int

    @property
    def makespan_s(self) -> float:
        """From the trace's beginning to the last end."""
        return self.outcome.makespan_s


def best_known(
    jobs: Sequence[TraceJob],
    machine: Machine,
    setting: Setting | None = None,
    evaluations: int = 60_000,
    seed: int = 0,
    restarts: int = 1,
) -> Found:
    """Search a schedule of small makespan, and of small mean end among equals.

    Of the setting count the interference, how GPUs are shared and how many jobs one holds at once;
    the other conditions, telemetry, the scheduler's pace and time limits, which bind a policy, do
    not. Memory is bound by what can be reserved on a GPU. ``evaluations``: schedules that are
    tried, over all ``restarts``, each from the schedule of another policy. Deterministic by
    ``seed``. Raises UsageFault for a job that fits nowhere, and where the search was not
    built.
    """
    if not built():
        raise UsageFault(f"clairvoyant: its search {NOT_BUILT}")
    free = _free(setting or Setting())
    unlimited = [replace(job, limit_s=None) for job in jobs]
    model = Model(unlimited, machine, free)
    begin = starts(model, machine, free)
    best: Best | None = None
    for number in range(restarts):
        spots = begin[number % len(begin)][1]
        draw = Draw(seed * 1009 + number)
        found = anneal(model, [model.run], spots, draw, evaluations // restarts)
        if best is None or (found.makespan_s, found.score) < (best.makespan_s, best.score):
            best = found
    assert best is not None
    schedule = schedule_of(model, best.spots)
    return Found(schedule, replay(model, machine, free, schedule), evaluations)


def _free(setting: Setting) -> Setting:
    """A setting without what binds a scheduler that does not know everything."""
    return replace(
        setting,
        conditions=Conditions(jobs=setting.conditions.jobs),
        pace=Pace(),
        fence=False,
        settle=False,
        pool=None,
        max_limit_s=None,
    )


def schedule_of(model: Model, spots: Sequence[Spot]) -> tuple[Planned, ...]:
    """The schedule that a plan gives."""
    start_s, end_s = times(model, spots)
    return tuple(
        Planned(job.id, spot.slots, start, end)
        for job, spot, start, end in zip(model.jobs, spots, start_s, end_s, strict=True)
    )


def replay(
    model: Model, machine: Machine, setting: Setting, schedule: Sequence[Planned]
) -> Outcome:
    """Play a schedule through the engine. Raises AssertionError where that sees other times."""
    requests = truths(model)
    policy = Follow(schedule)
    outcome = Simulation(model.jobs, machine, policy, setting, lambda job: requests[job.id]).run()
    ends = {record.job.id: record.end_s for record in outcome.records}
    for one in schedule:
        seen = ends[one.job_id]
        if seen is None or abs(seen - one.end_s) > AGREE * max(1.0, one.end_s):
            raise AssertionError(f"job {one.job_id}: ends at {seen} s, planned was {one.end_s} s")
    return outcome


class Clairvoyant:
    """Stands where a policy stands in an experiment, and is a search. ``evaluations``: schedules
    that it tries."""

    name = "clairvoyant"

    def __init__(self, evaluations: int) -> None:
        self.evaluations = evaluations

    def next(self, view: View) -> Start | None:
        """It needs the whole trace beforehand."""
        raise UsageFault("clairvoyant: searched for a whole trace, not asked step by step")
