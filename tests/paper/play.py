# SPDX-License-Identifier: Apache-2.0
"""Play cases: the same jittered traces for every one, so that runs can be compared in pairs."""

import os
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, stdev

from estimator.power.thesis import run_way
from slurm_coloc.sim.bound import bound_s
from slurm_coloc.sim.machine import Machine, parse_machine
from slurm_coloc.sim.policies import BEST, best_policy, best_setting, policy
from slurm_coloc.sim.setting import Setting
from slurm_coloc.sim.simulate import Experiment, Jitter, play, variation
from slurm_coloc.sim.trace import TraceJob
from tests.paper.cases import Case, baseline, exclusive
from tests.paper.facts import TRACES, trace

GPUS = "4xa100-40gb"
#: waiting jobs that ours looks at, as `coloc simulate` does by default
DEPTH = 50


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure over all runs. ``sd``: of single runs; a published value is one such run."""

    mean: float
    sd: float

    @classmethod
    def of(cls, values: list[float]) -> "Spread":
        """Mean and standard deviation."""
        return cls(fmean(values), stdev(values) if len(values) > 1 else 0.0)

    def text(self, digits: int = 1) -> str:
        """As the table shows it."""
        return f"{self.mean:.{digits}f} +- {self.sd:.{digits}f}"


@dataclass
class Lab:
    """Traces, machine, and what was played already."""

    facts: Path
    runs: int
    seed: int = 0
    machine: Machine = field(default_factory=lambda: parse_machine(GPUS))
    _traces: dict[str, list[TraceJob]] = field(default_factory=dict)
    _variations: dict[str, list[list[TraceJob]]] = field(default_factory=dict)
    _done: dict[tuple[str, str], list[dict[str, float]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in TRACES:
            jobs = self._traces[name] = trace(self.facts, name)
            self._variations[name] = [
                variation(jobs, Jitter(), self.seed, number)[0] for number in range(self.runs)
            ]

    def jobs(self, name: str) -> list[TraceJob]:
        """A trace as it stands."""
        return self._traces[name]

    def variations(self, name: str) -> list[list[TraceJob]]:
        """Its jittered runs."""
        return self._variations[name]

    def figures(self, case: Case) -> list[dict[str, float]]:
        """What came out, run by run."""
        key = (case.trace, case.label)
        if key not in self._done:
            began = time.monotonic()
            runs = min(self.runs, case.runs or self.runs)
            self._done[key] = self._all(case, runs)
            took = time.monotonic() - began
            print(f"  {case.trace}: {case.label} ({took:.1f} s)", file=sys.stderr, flush=True)
        return self._done[key]

    def _all(self, case: Case, runs: int) -> list[dict[str, float]]:
        """Run by run, as many at once as there are CPUs: each run has its own chances."""
        most = min(runs, os.cpu_count() or 1)
        if most == 1:
            return [self._play(case, number) for number in range(runs)]
        with get_context("fork").Pool(most) as pool:
            return pool.map(partial(self._play, case), range(runs), chunksize=1)

    def _play(self, case: Case, number: int) -> dict[str, float]:
        if case.way is not None:
            jobs = self._variations[case.trace][number]
            return run_way(case.way, jobs, self.machine).figures()
        outcome, _ = play(self._experiment(case), number)
        return outcome.figures()

    def _experiment(self, case: Case) -> Experiment:
        setting = Setting(method=case.method, depth=1 if case.policy == "exclusive" else DEPTH)
        best = case.policy == BEST
        return Experiment(
            self.jobs(case.trace),
            self.machine,
            best_policy() if best else policy(case.policy),
            best_setting(setting, self.machine.gpus) if best else setting,
            case.estimator,
            runs=self.runs,
            seed=self.seed,
        )

    def values(self, case: Case, name: str) -> list[float]:
        """One figure, run by run."""
        return [figures[name] for figures in self.figures(case)]

    def spread(self, case: Case, name: str) -> Spread:
        """One figure."""
        return Spread.of(self.values(case, name))

    def reductions(self, case: Case, name: str) -> list[float]:
        """Per cent less than exclusive, run by run; a case of fewer runs has the first ones."""
        alone = self.values(baseline(case), name)
        return [
            100 * (1 - ours / theirs)
            for ours, theirs in zip(self.values(case, name), alone, strict=False)
        ]

    def share(self, case: Case) -> Spread:
        """Time saved over what the bound allows to save (ratio), run by run."""
        played = zip(
            self.values(case, "makespan_s"),
            self.values(baseline(case), "makespan_s"),
            self._variations[case.trace],
            strict=False,
        )
        gpus = self.machine.gpus
        return Spread.of(
            [(most - ours) / (most - bound_s(jobs, gpus)) for ours, most, jobs in played]
        )

    def bound(self, name: str) -> float:
        """Per cent of the exclusive total time that no schedule can save more of (mean)."""
        alone = self.values(exclusive(name), "makespan_s")
        bounds = [bound_s(jobs, self.machine.gpus) for jobs in self._variations[name]]
        return fmean(100 * (1 - least / most) for least, most in zip(bounds, alone, strict=True))
