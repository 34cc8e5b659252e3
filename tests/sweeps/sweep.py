# SPDX-License-Identifier: Apache-2.0
"""One sweep: a knob, its values, and what each value does over all made-up traces."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from slurm_coloc.core.place.interference import REFERENCE, Interference
from slurm_coloc.core.place.placing import Conditions
from slurm_coloc.sim.machine import parse_machine
from slurm_coloc.sim.policies import policy
from slurm_coloc.sim.setting import Setting
from slurm_coloc.sim.simulate import Experiment, play
from tests.sweeps.mixes import MIXES, Mix

#: Slurm's own way: first fit by shards, backfill over so many jobs (bf_max_job_test is 500)
NATIVE = Setting(conditions=Conditions(by_plan=True), depth=100)
Figures = dict[str, float | None]


@dataclass(frozen=True, slots=True)
class Way:
    """One value of a knob: what is simulated. ``estimator`` as for `coloc simulate`."""

    label: str
    setting: Setting = NATIVE
    policy: str = "first-fit"
    estimator: str = "error:0.03"


@dataclass(frozen=True, slots=True)
class Sweep:
    """``knob``: as the configuration names it. ``mixes``: which traces; ``adapt``: what a way does
    to a mix before (its users, its plain jobs)."""

    name: str
    knob: str
    ways: Sequence[Way]
    mixes: Sequence[Mix] = MIXES
    adapt: Callable[[Mix, Way], Mix] = field(default=lambda mix, way: mix)


def run(
    sweep: Sweep, seeds: int, interference: Interference = REFERENCE
) -> dict[str, dict[str, Figures]]:
    """way -> mix -> means over the seeds, in the figures of ``compare``."""
    out: dict[str, dict[str, Figures]] = {}
    for way in sweep.ways:
        out[way.label] = {
            mix.name: mean(
                [compare(sweep.adapt(mix, way), way, seed, interference) for seed in range(seeds)]
            )
            for mix in sweep.mixes
        }
    return out


def compare(mix: Mix, way: Way, seed: int, interference: Interference = REFERENCE) -> Figures:
    """One trace under one way against the same trace with whole GPUs.

    ``saving``: of the makespan that the bound allows to save; None where that is little.
    ``jct`` and ``energy``: ratios to exclusive. ``slow95``: 95th percentile of the time beside
    others over the time alone. ``oom`` and ``timeouts``: counts. ``plain_wait``: 95th
    percentile of the wait of jobs without --coloc less that under exclusive (s).
    """
    jobs = mix.trace(seed)
    machine = parse_machine(f"{mix.gpus}xa100-40gb")
    base = Experiment(jobs, machine, policy("exclusive"), replace(NATIVE), "oracle", seed=seed)
    alone, bound = play(base)
    mine, _ = play(
        replace(
            base,
            policy=policy(way.policy),
            setting=replace(way.setting, interference=interference),
            estimator=way.estimator,
        )
    )
    a, b = alone.figures(), mine.figures()
    room = a["makespan_s"] - bound
    out: Figures = {
        # Where the last jobs arrive late there is nothing to save, and one of them decides.
        "saving": (a["makespan_s"] - b["makespan_s"]) / room if room > 0.15 * bound else None,
        "jct": b["mean_jct_s"] / a["mean_jct_s"],
        "slow95": b["p95_slowdown"],
        "oom": b["oom"],
        "timeouts": b["timeouts_by_sharing"],
        "energy": b["energy_mj"] / a["energy_mj"],
    }
    if "p95_wait_plain_s" in a:
        out["plain_wait"] = b["p95_wait_plain_s"] - a["p95_wait_plain_s"]
    return out


def mean(rows: Sequence[Mapping[str, float | None]]) -> Figures:
    """The mean of each figure where it is known."""
    out: Figures = {}
    for name in rows[0]:
        known = [value for row in rows if (value := row[name]) is not None]
        out[name] = fmean(known) if known else None
    return out
