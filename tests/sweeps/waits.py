# SPDX-License-Identifier: Apache-2.0
"""How long jobs for whole GPUs wait where others share, beside the same trace without sharing.

make fair-waits-sim ARGS='--seeds 100'
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean

from slurm_coloc.core.place.placing import Conditions, Policy
from slurm_coloc.sim.machine import parse_machine
from slurm_coloc.sim.outcome import Outcome, quantile
from slurm_coloc.sim.policies import policy
from slurm_coloc.sim.setting import Setting
from slurm_coloc.sim.simulate import Experiment, play
from slurm_coloc.sim.trace import TraceJob
from tests.sweeps.mixes import Mix
from tests.sweeps.sweep import NATIVE

#: time limits over run times
LIMITS = (1.5, 5.0)
#: a third of the jobs wants whole GPUs, some several
MIXES = tuple(
    Mix(f"load {load:g}", jobs=60, wide=0.2, plain=0.3, load=load) for load in (0.7, 1.0, 2.0)
)
#: Slurm plans by time limits
PLAIN = replace(NATIVE, expect_runs=False)
STEERED = replace(PLAIN, conditions=Conditions(by_plan=True, margin_mib=0, smact_at_most=0.8))
WHOLE_FIRST = replace(STEERED, conditions=replace(STEERED.conditions, keep_whole=True))


WAYS: tuple[tuple[str, Policy, Setting], ...] = (
    ("native, first fit", policy("first-fit"), PLAIN),
    ("native, LL_SHARED_GRES", policy("magm"), PLAIN),
    ("steered, magm", policy("magm"), STEERED),
    ("steered, auto", policy("auto"), STEERED),
    ("steered, interference", policy("interference"), STEERED),
    ("steered, whole_first", policy("magm"), WHOLE_FIRST),
)


FORMS = (".1f", ".1f", ".0%", ".0%", ".1f", ".1f", ".2f")


@dataclass(frozen=True, slots=True)
class Compared:
    """One trace both ways: of its whole-GPU jobs the mean waits, and how much longer (s) each of
    them waited with sharing; the mean completion time of all jobs over that without."""

    with_s: float
    without_s: float
    more_s: Sequence[float]
    jct: float


def whole(jobs: Sequence[TraceJob]) -> list[TraceJob]:
    """The trace with every job of several GPUs without --coloc, and a time limit for each."""
    draw = Random(jobs[0].run_s)
    return [
        replace(job, coloc=job.coloc and job.gpus == 1, limit_s=job.run_s * draw.uniform(*LIMITS))
        for job in jobs
    ]


def compare(jobs: Sequence[TraceJob], way: Policy, setting: Setting, seed: int) -> Compared:
    """One trace under a way and with whole GPUs for all."""
    machine = parse_machine("4xa100-40gb")
    alone, _ = play(Experiment(jobs, machine, policy("exclusive"), PLAIN, seed=seed))
    mine, _ = play(Experiment(jobs, machine, way, setting, "error:0.03", seed=seed))
    first, second = _waits(alone), _waits(mine)
    more = [second[job] - first[job] for job in first]
    jct = mine.figures()["mean_jct_s"] / alone.figures()["mean_jct_s"]
    return Compared(fmean(second.values()), fmean(first.values()), more, jct)


def _waits(outcome: Outcome) -> dict[int, float]:
    return {
        one.job.id: (one.start_s or 0.0) - one.job.submit_s
        for one in outcome.records
        if not one.job.coloc
    }


def main() -> None:
    """Tables on stdout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="traces of each mix")
    args = parser.parse_args()
    heads = ("wait", "without", "traces", "jobs", "5 %", "95 %", "JCT")
    print(f"{'':34}" + "".join(f"{head:>9}" for head in heads))
    for mix in MIXES:
        for label, way, setting in WAYS:
            found = [
                compare(whole(mix.trace(seed)), way, setting, seed) for seed in range(args.seeds)
            ]
            more = sorted(value for one in found for value in one.more_s)
            cells = (
                fmean(one.with_s for one in found) / 60,
                fmean(one.without_s for one in found) / 60,
                sum(one.with_s > one.without_s + 60 for one in found) / len(found),
                sum(value > 60 for value in more) / len(more),
                quantile(more, 0.05) / 60,
                quantile(more, 0.95) / 60,
                fmean(one.jct for one in found),
            )
            shown = [f"{cell:9{form}}" for cell, form in zip(cells, FORMS, strict=True)]
            print(f"{mix.name + ', ' + label:34}" + "".join(shown), flush=True)
    print("minutes; traces, jobs: part of them in which whole GPUs were waited for longer by more")
    print("than a minute; 5 %, 95 %: of how much longer each job waited")


if __name__ == "__main__":
    main()
