# SPDX-License-Identifier: Apache-2.0
"""Fits the power curves to solo profiles and to the energy totals of the thesis' Table 6.6.

    python -m estimator.power.fit FACTS

FACTS holds outside_solo_profiles.csv, activity.csv, jobs_60.csv and expected.csv. Prints the
constants and the tables of README.md beside this file.
"""

import argparse
import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from estimator.interference.leastsquares import minimise
from estimator.power.thesis import Way, run_way, thesis_way
from slurm_coloc.core.place.interference import FITTED, REFERENCE, Interference
from slurm_coloc.sim.machine import parse_machine
from slurm_coloc.sim.power import POWERS, PROFILES, THESIS, Power
from slurm_coloc.sim.readers.trace_csv import read_trace
from slurm_coloc.sim.simulate import Jitter
from slurm_coloc.sim.trace import TraceJob

RUNS = 10
#: rows of Table 6.6 and how the thesis' server ran them
GATE = {"order": "magm", "smact_at_most": 0.8}
ROWS: Sequence[tuple[str, str, dict[str, object]]] = (
    ("T6.6-1", "exclusive", {"order": "exclusive"}),
    ("T6.6-2", "round robin, streams", {"order": "round-robin", "method": "streams"}),
    ("T6.6-3", "round robin, MPS", {"order": "round-robin"}),
    ("T6.6-4", "MAGM", {**GATE, "free_mib": 2000}),
    ("T6.6-5", "MAGM, Horus", {**GATE, "estimator": "horus"}),
    ("T6.6-6", "MAGM, FakeTensor", {**GATE, "estimator": "faketensor"}),
    ("T6.6-7", "MAGM, GPUMemNet", {**GATE, "estimator": "gpumemnet"}),
)
STREAMS = 1  # the row that no curve of activity explains: see README


@dataclass(frozen=True, slots=True)
class Profile:
    """A training alone: activities (ratios) and mean power (W)."""

    smact: float
    drama: float
    watts: float


class Hours(dict[tuple[float, float], float]):
    """Seconds at each (SM, DRAM) activity; adds up like the joules it stands in for."""

    def __mul__(self, seconds: float) -> "Hours":
        return Hours({at: value * seconds for at, value in self.items()})

    def __add__(self, other: object) -> "Hours":
        out = Hours(self)
        for at, value in other.items() if isinstance(other, Hours) else ():
            out[at] = out.get(at, 0.0) + value
        return out

    __radd__ = __add__


class Meter:
    """In a power curve's place: notes where the time was spent, so that any curve can be tried."""

    def on(self, kind: str) -> "Meter":
        """The same for every type."""
        return self

    def watts(self, smact: float, drama: float | None = None) -> Hours:
        """One second there."""
        return Hours({(round(smact, 3), round(drama or 0.0, 3)): 1.0})


def read_profiles(path: Path) -> list[Profile]:
    """The profiles that state power."""
    with path.open(newline="", encoding="utf-8") as file:
        return [
            Profile(*(float(row[name]) for name in ("smact_mean", "drama_mean", "power_mean_W")))
            for row in csv.DictReader(file)
            if row["power_mean_W"]
        ]


def read_published(path: Path) -> dict[str, float]:
    """Row of expected.csv -> MJ."""
    with path.open(newline="", encoding="utf-8") as file:
        return {
            row["id"]: float(row["value"])
            for row in csv.DictReader(file)
            if row["id"].startswith("T6.6")
        }


def read_jobs(facts: Path) -> list[TraceJob]:
    """The 60-job trace, with the DRAM activity of its trainings' profiles."""
    with (facts / "activity.csv").open(newline="", encoding="utf-8") as file:
        drama = {row["config"]: float(row["drama_mean"]) for row in csv.DictReader(file)}
    jobs = read_trace(facts / "jobs_60.csv")
    return [replace(job, activity=replace(job.activity, drama=drama[job.name])) for job in jobs]


def hours(way: Way, jobs: Sequence[TraceJob], runs: int = RUNS) -> Hours:
    """Seconds that the four GPUs spent at each activity, mean of jittered runs."""
    machine, total = parse_machine("4xa100-40gb"), Hours()
    for number in range(runs):
        varied = Jitter().of(jobs, Random(number))
        joules: object = run_way(way, varied, machine).joules
        assert isinstance(joules, Hours)
        total += joules * (1 / runs)
    return total


def all_hours(facts: Path, model: Interference, runs: int = RUNS) -> list[Hours]:
    """Of each row of Table 6.6."""
    jobs, meter = read_jobs(facts), Meter()
    return [
        hours(thesis_way(**how, interference=model, power=meter), jobs, runs)  # type: ignore[arg-type]
        for _, _, how in ROWS
    ]


def megajoules(curve: Power, spent: Hours) -> float:
    """Energy of a run under a curve."""
    return sum(curve.watts(*at) * seconds for at, seconds in spent.items()) / 1e6


def on_profiles(curve: Power, profiles: Sequence[Profile]) -> float:
    """RMSE in W."""
    errors = [curve.watts(one.smact, one.drama) - one.watts for one in profiles]
    return math.sqrt(sum(error * error for error in errors) / len(errors))


def fit_profiles(profiles: Sequence[Profile]) -> list[float]:
    """Base, per SM activity, per DRAM activity (W)."""
    return minimise(
        lambda p: [p[0] + p[1] * one.smact + p[2] * one.drama - one.watts for one in profiles],
        (30.0, 230.0, 100.0),
    )


def scaled(curve: Power, by: float, limit_w: float) -> Power:
    """A curve times a factor, with another limit."""
    return replace(
        curve,
        base_w=by * curve.base_w,
        smact_w=by * curve.smact_w,
        dram_w=by * curve.dram_w,
        limit_w=limit_w,
    )


def fit_totals(spent: Sequence[Hours], published: Sequence[float]) -> list[float]:
    """Factor and limit (W) that bring the totals nearest, streams left out."""
    rows = [i for i in range(len(ROWS)) if i != STREAMS]
    return minimise(
        lambda p: [
            megajoules(scaled(PROFILES, p[0], 100 * p[1]), spent[i]) - published[i] for i in rows
        ],
        (1.0, 2.8),
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("facts", type=Path)
    facts = parser.parse_args().facts
    profiles = read_profiles(facts / "outside_solo_profiles.csv")
    known = read_published(facts / "expected.csv")
    published = [known[row] for row, _, _ in ROWS]
    print("profiles:", " ".join(f"{value:.2f}" for value in fit_profiles(profiles)))
    for model in (REFERENCE, FITTED):
        spent = all_hours(facts, model)
        factor, limit = fit_totals(spent, published)
        print(f"\ntotals under {model.name}: factor {factor:.3f}, limit {100 * limit:.0f} W\n")
        print("| row | published MJ | " + " | ".join(POWERS) + " |")
        print("|---|---|" + "---|" * len(POWERS))
        for i, (row, what, _) in enumerate(ROWS):
            cells = [f"{published[i]:.1f} ({_less(published, i)})"]
            for curve in (THESIS, PROFILES):
                totals = [megajoules(curve, one) for one in spent]
                cells.append(f"{totals[i]:.1f} ({_less(totals, i)})")
            print(f"| {row} {what} | " + " | ".join(cells) + " |")
    for name, curve in POWERS.items():
        print(f"\n{name}: RMSE on {len(profiles)} profiles {on_profiles(curve, profiles):.1f} W")


def _less(totals: Sequence[float], i: int) -> str:
    return f"{100 * (totals[i] / totals[0] - 1):+.1f} %"


if __name__ == "__main__":
    main()
