# SPDX-License-Identifier: Apache-2.0
"""A simulation as it is asked for: a trace, a machine, a policy, and several runs of it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean, pstdev

from slurm_coloc.core.place.placing import Policy
from slurm_coloc.policies import fresh
from slurm_coloc.sim.bound import bound_s
from slurm_coloc.sim.engine import Simulation
from slurm_coloc.sim.estimates import request_maker
from slurm_coloc.sim.machine import Machine
from slurm_coloc.sim.outcome import Outcome
from slurm_coloc.sim.search.clairvoyant import Clairvoyant, best_known
from slurm_coloc.sim.setting import Setting
from slurm_coloc.sim.trace import TraceJob


@dataclass(frozen=True, slots=True)
class Jitter:
    """The same trace a little otherwise: one placement changes several figures, so answers are
    means of several runs. ``submit_s``: standard deviation of a submission's time. ``run``: of the
    logarithm of a run time; epochs of one training differ by a few per cent."""

    submit_s: float = 20.0
    run: float = 0.02

    def of(self, jobs: Sequence[TraceJob], rng: Random) -> list[TraceJob]:
        """One variation. Run times keep their mean, limits stay."""
        return [
            replace(
                job,
                submit_s=max(0.0, job.submit_s + rng.gauss(0.0, self.submit_s)),
                run_s=job.run_s * math.exp(rng.gauss(0.0, self.run) - self.run**2 / 2),
            )
            for job in jobs
        ]


def variation(
    jobs: Sequence[TraceJob], jitter: Jitter, seed: int, number: int
) -> tuple[list[TraceJob], Random]:
    """The n-th variation of a seed, the same whatever the policy, and what further chances of that
    run are drawn from."""
    rng = Random(f"{seed}/{number}")
    return jitter.of(jobs, rng), rng


@dataclass(frozen=True, slots=True)
class Experiment:
    """What is simulated. ``runs``: with 1 the trace is played as it stands, with more each is
    jittered. ``seed``: of the jitter and of simulated estimation errors."""

    jobs: Sequence[TraceJob]
    machine: Machine
    policy: Policy
    setting: Setting = Setting()
    estimator: str = "oracle"
    runs: int = 1
    seed: int = 0
    jitter: Jitter = Jitter()


def play(experiment: Experiment, number: int = 0) -> tuple[Outcome, float]:
    """One run and its bound (seconds). Runs of one seed and number meet the same jobs whatever the
    policy."""
    jobs, rng = experiment.jobs, Random(f"{experiment.seed}/{number}")
    if experiment.runs > 1:
        jobs, rng = variation(jobs, experiment.jitter, experiment.seed, number)
    if isinstance(experiment.policy, Clairvoyant):
        tries = experiment.policy.evaluations
        best = best_known(jobs, experiment.machine, experiment.setting, tries, experiment.seed)
        return best.outcome, bound_s(jobs, experiment.machine.gpus)
    largest_mib = max(device.usable_mib for device in experiment.machine.devices)
    request_of = request_maker(
        experiment.estimator,
        jobs,
        rng,
        largest_mib,
        size_budget=experiment.setting.size_budget,
    )
    policy = fresh(experiment.policy)
    seed = f"{experiment.seed}/{number}"
    simulation = Simulation(jobs, experiment.machine, policy, experiment.setting, request_of, seed)
    return simulation.run(), bound_s(jobs, experiment.machine.gpus)


def simulate(
    experiment: Experiment, each: Callable[[int], None] = lambda number: None
) -> dict[str, object]:
    """All runs: the mean of each figure, and its spread where there are several. ``each`` is
    called with the number of runs that are done."""
    quiet = replace(experiment, setting=replace(experiment.setting, record=False))
    figures: list[dict[str, float]] = []
    for number in range(experiment.runs):
        outcome, bound = play(quiet, number)
        figures.append({**outcome.figures(), "bound_s": bound})
        each(number + 1)
    names = list(figures[0])
    answer: dict[str, object] = {"schema": 1}
    answer |= {name: fmean(one[name] for one in figures) for name in names}
    answer["runs"] = experiment.runs
    if experiment.runs > 1:
        answer["spread"] = {name: pstdev(one[name] for one in figures) for name in names}
    return answer
