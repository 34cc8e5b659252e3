# SPDX-License-Identifier: Apache-2.0
"""Made-up traces of deep-learning jobs, by seed: what a policy meets beyond the published ones.

A trace has some trainings of a few families; a job is one run of a training, so names recur as they
do on a real cluster. The families' ranges are those of the workloads that the papers measured
(small inputs; ImageNet-sized; language models), drawn anew each time.
"""

import math
from dataclasses import dataclass
from random import Random

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.sim.trace import TraceJob


@dataclass(frozen=True, slots=True)
class Family:
    """Ranges: SM activity and DRAM activity (ratios), memory (MiB), minutes alone."""

    name: str
    smact: tuple[float, float]
    drama: tuple[float, float]
    memory_mib: tuple[int, int]
    minutes: tuple[float, float]


LIGHT = Family("light", (0.07, 0.25), (0.002, 0.07), (1_500, 3_500), (2, 40))
MEDIUM = Family("medium", (0.45, 0.70), (0.20, 0.50), (4_000, 20_000), (20, 60))
HEAVY = Family("heavy", (0.75, 0.95), (0.14, 0.45), (8_000, 26_000), (15, 80))


@dataclass(frozen=True, slots=True)
class Mix:
    """``light``, ``medium``: shares of the jobs, the rest is heavy. ``wide``: share of the
    heavy and medium jobs that want 2 or 4 GPUs. ``load``: exclusive GPU time that arrives over
    GPU time that is there; ``plain``: share of jobs without --coloc. ``recur``: jobs a
    training.
    """

    name: str
    jobs: int = 80
    gpus: int = 4
    light: float = 0.3
    medium: float = 0.4
    wide: float = 0.1
    load: float = 3.0
    users: int = 1
    plain: float = 0.0
    recur: int = 4

    def trace(self, seed: int) -> list[TraceJob]:
        """The jobs of one seed, by submission."""
        rng = Random(f"{self.name}/{seed}")
        trainings = [self._training(rng, i) for i in range(max(1, self.jobs // self.recur))]
        jobs = [self._run(rng, rng.choice(trainings), i + 1) for i in range(self.jobs)]
        busy_s = sum(job[3] * job[2] for job in jobs)
        span_s = busy_s / (self.gpus * self.load)
        times = sorted(rng.uniform(0.0, span_s) for _ in jobs)
        return [self._job(rng, job, when) for job, when in zip(jobs, times, strict=True)]

    def _training(self, rng: Random, number: int) -> tuple[str, int, float, int, Activity]:
        """(name, GPUs, seconds, MiB, activity)"""
        draw = rng.random()
        family = LIGHT if draw < self.light else HEAVY
        if self.light <= draw < self.light + self.medium:
            family = MEDIUM
        wide = family is not LIGHT and rng.random() < self.wide
        minutes = math.exp(rng.uniform(*map(math.log, family.minutes)))
        memory = math.exp(rng.uniform(*map(math.log, family.memory_mib)))
        activity = Activity(rng.uniform(*family.smact), drama=rng.uniform(*family.drama))
        gpus = rng.choice([2, 2, 4]) if wide else 1
        return f"{family.name}-{number}", min(gpus, self.gpus), 60 * minutes, int(memory), activity

    def _run(
        self, rng: Random, training: tuple[str, int, float, int, Activity], number: int
    ) -> tuple[int, str, int, float, int, Activity]:
        name, gpus, seconds, memory, activity = training
        return number, name, gpus, seconds * rng.uniform(0.95, 1.05), memory, activity

    def _job(
        self, rng: Random, job: tuple[int, str, int, float, int, Activity], when_s: float
    ) -> TraceJob:
        number, name, gpus, seconds, memory, activity = job
        # A few users submit most of the jobs.
        user = min(int(rng.paretovariate(1.0)), self.users) - 1
        return TraceJob(
            number,
            name,
            when_s,
            gpus,
            seconds,
            memory,
            activity,
            user=f"u{user}",
            account=f"a{user % max(1, self.users // 5)}",
            coloc=rng.random() >= self.plain,
        )


MIXES = (
    Mix("mixed"),
    Mix("light", light=0.8, medium=0.15, wide=0.0),
    Mix("heavy", light=0.05, medium=0.25),
    Mix("wide", light=0.2, medium=0.3, wide=0.4, gpus=8, jobs=100),
    Mix("steady", load=1.0, jobs=150),
    Mix("busy", load=1.5, jobs=150, gpus=8),
)
