# SPDX-License-Identifier: Apache-2.0
"""Fits the interference model to measured pairs and tells how well it does on pairs it never saw.

    python -m estimator.interference.fit PAIRS.csv PROFILES.csv

The files are described in README.md beside this one. Prints the constants and the table there.
"""

import argparse
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from estimator.interference.leastsquares import minimise
from estimator.interference.measured import (
    Pair,
    families,
    itself,
    read_pairs,
    read_profiles,
    read_unprofiled,
    workloads,
)
from slurm_coloc.core.place.activity import Activity
from slurm_coloc.core.place.interference import FITTED, REFERENCE

#: constants -> speeds of two jobs
Model = Callable[[Sequence[float], Sequence[Activity]], Sequence[float]]
#: The weight of DRAM activity is held near 0 by one more residual of this standard deviation: in
#: all families but one DRAM activity is about half the SM activity, and without that one (ResNet50)
#: the weight would be anybody's guess.
DRAM_PRIOR = 0.4
GROUPS = {"pair": itself, "workload": workloads, "family": families}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model that is compared. ``start``: where its constants are searched from; none: fixed.
    ``dram``: which of them is the weight of DRAM activity."""

    name: str
    speeds: Model
    start: tuple[float, ...] = ()
    dram: int | None = None


def _constant(p: Sequence[float], jobs: Sequence[Activity]) -> list[float]:
    return [p[0]] * len(jobs)


def _shares(p: Sequence[float], jobs: Sequence[Activity]) -> list[float]:
    return [min(1.0, p[0] / sum(job.smact for job in jobs))] * len(jobs)


def _fitted(p: Sequence[float], jobs: Sequence[Activity]) -> list[float]:
    model = replace(FITTED, overlap=p[0], blocking=p[1], steep=p[2], dram=p[3])
    return model.speeds(jobs)


def _everybody_exposed(p: Sequence[float], jobs: Sequence[Activity]) -> list[float]:
    model = replace(FITTED, overlap=p[0], blocking=p[1], steep=p[2], dram=p[3], exposed=1e-6)
    return model.speeds(jobs)


def _no_overlap(p: Sequence[float], jobs: Sequence[Activity]) -> list[float]:
    model = replace(FITTED, overlap=0.0, blocking=p[0], steep=p[1], dram=p[2])
    return model.speeds(jobs)


def blind(jobs: Sequence[Activity]) -> list[Activity]:
    """The same without DRAM and graphics engine activity: what a plain trace knows."""
    return [Activity(job.smact) for job in jobs]


def _smact_only(p: Sequence[float], jobs: Sequence[Activity]) -> list[float]:
    model = replace(FITTED, overlap=p[0], blocking=p[1], steep=p[2])
    return model.speeds(blind(jobs))


START = (FITTED.overlap, FITTED.blocking, FITTED.steep, FITTED.dram)
CANDIDATES = (
    Candidate("constant", _constant, (0.8,)),
    Candidate("share of capacity", _shares, (1.0,)),
    Candidate("reference as it stands", lambda p, jobs: REFERENCE.speeds(jobs)),
    Candidate("reference, k fitted", lambda p, j: replace(REFERENCE, k=p[0]).speeds(j), (1.1,)),
    Candidate("fitted, SM activity alone, refitted", _smact_only, (0.3, 1.0, 12.0)),
    Candidate("fitted without overlap", _no_overlap, START[1:], 2),
    Candidate("fitted without exposure", _everybody_exposed, START, 3),
    Candidate("fitted", _fitted, START, 3),
)
BLIND = Candidate("fitted, DRAM activity not told", lambda p, jobs: FITTED.speeds(blind(jobs)))


def fit(candidate: Candidate, pairs: Sequence[Pair]) -> list[float]:
    """Its constants by weighted least squares over both speeds of each pair."""
    if not candidate.start:
        return []

    def residuals(p: Sequence[float]) -> list[float]:
        out = [
            (model - seen) / noise
            for pair in pairs
            for model, seen, noise in zip(
                candidate.speeds(p, pair.jobs), pair.speeds, pair.noise, strict=True
            )
        ]
        return out if candidate.dram is None else [*out, p[candidate.dram] / DRAM_PRIOR]

    return minimise(residuals, candidate.start)


@dataclass(slots=True)
class Errors:
    """Sums of squared errors of speeds, plain and with each counted by its certainty."""

    plain: float = 0.0
    count: float = 0.0
    weighted: float = 0.0
    weights: float = 0.0

    def add(self, candidate: Candidate, p: Sequence[float], pair: Pair, part: float = 1.0) -> None:
        """Both speeds of a pair."""
        found = candidate.speeds(p, pair.jobs)
        for model, seen, noise in zip(found, pair.speeds, pair.noise, strict=True):
            self.plain += part * (model - seen) ** 2
            self.count += part
            self.weighted += part * (model - seen) ** 2 / noise**2
            self.weights += part / noise**2

    @property
    def rmse(self) -> float:
        """Root of the mean square."""
        return math.sqrt(self.plain / self.count)

    @property
    def weighted_rmse(self) -> float:
        """The same, sure speeds counting more."""
        return math.sqrt(self.weighted / self.weights)


def on_all(candidate: Candidate, pairs: Iterable[Pair], p: Sequence[float]) -> Errors:
    """Errors on given pairs."""
    errors = Errors()
    for pair in pairs:
        errors.add(candidate, p, pair)
    return errors


def left_out(
    candidate: Candidate, pairs: Sequence[Pair], groups: Callable[[Pair], list[str]]
) -> Errors:
    """Errors on pairs of each group by constants from the pairs without it.

    A pair that is in two groups is tested twice and counts half each time.
    """
    errors = Errors()
    for group in sorted({name for pair in pairs for name in groups(pair)}):
        rest = [pair for pair in pairs if group not in groups(pair)]
        p = fit(candidate, rest)
        for pair in pairs:
            if group in groups(pair):
                errors.add(candidate, p, pair, 1 / len(groups(pair)))
    return errors


def unprofiled(
    candidate: Candidate, path: Path, profiles: dict[str, Activity], name: str
) -> tuple[float, Errors]:
    """Pairs of a training without a profile: the one SM activity that explains them best, and what
    is left. Constants as they stand; of 2 numbers a pair, one for all is free."""
    return min(
        (
            (part / 100, on_all(candidate, read_unprofiled(path, profiles, name, job), ()))
            for part in range(5, 100)
            for job in [Activity(part / 100)]
        ),
        key=lambda found: found[1].weighted_rmse,
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("profiles", type=Path)
    given = parser.parse_args()
    profiles = read_profiles(given.profiles)
    pairs, unknown = read_pairs(given.pairs, profiles)
    print(f"{len(pairs)} pairs; left out for want of a profile: {', '.join(unknown) or 'none'}\n")
    print(
        "| model | constants | on all pairs | " + " | ".join(f"{g} left out" for g in GROUPS) + " |"
    )
    print("|---|---|---|" + "---|" * len(GROUPS))
    for candidate in (*CANDIDATES, BLIND):
        p = fit(candidate, pairs)
        cells = [on_all(candidate, pairs, p)]
        cells += [left_out(candidate, pairs, groups) for groups in GROUPS.values()]
        told = " ".join(f"{value:.3f}" for value in p) or "-"
        row = " | ".join(f"{one.rmse:.4f} ({one.weighted_rmse:.4f})" for one in cells)
        print(f"| {candidate.name} | {told} | {row} |", flush=True)
    standing = Candidate("fitted", lambda p, jobs: FITTED.speeds(jobs))
    for name in unknown:
        for candidate in (CANDIDATES[2], standing):
            smact, errors = unprofiled(candidate, given.pairs, profiles, name)
            told = f"{errors.rmse:.4f} ({errors.weighted_rmse:.4f}) at SM activity {smact:.2f}"
            print(f"\n{name}, {candidate.name}: {told}")


if __name__ == "__main__":
    main()
