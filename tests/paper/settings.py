# SPDX-License-Identifier: Apache-2.0
"""What a model of interference says of the workshop paper's runs.

The paper names its trainings by size; their SM activity is an assumption, that of the facts the
reference model was checked with: small (ResNet26 on CIFAR10) 0.2 to 0.3, medium 0.4 to 0.5, large
(CaiT on ImageNet) 0.9. DRAM activity is not known. The recommender (DLRM) and ResNet152 are
published with SM activity; the recommender's GRACT is that of its later profile, ResNet152's DRAM
activity that of ResNet50, GRACT of ResNet152 as of the facts' check of streams.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.core.place.interference import Interference
from slurm_coloc.sim.power import A100

Range = tuple[float, float]
SMALL: Range = (0.2, 0.3)
MEDIUM: Range = (0.4, 0.5)
LARGE: Range = (0.9, 0.9)
#: DRAM over SM activity of large attention models: BERT's profiles have 0.16, and where it is not
#: known 0.5 stands for it
ATTENTION = (0.16, 0.5)
#: an A100's MIG slices: 14 of 108 SMs each; so many slices of seven a job gets when n share evenly
SLICE = 14 / 108
EVEN = {2: 3, 3: 2, 7: 1}
DLRM = Activity(0.05, gract=0.13)
RESNET152 = Activity(0.82, drama=0.5, gract=0.95)


def between(of: Callable[[float], float], smact: Range) -> Range:
    """Least and most of a figure over a range of SM activities."""
    values = [of(smact[0] + (smact[1] - smact[0]) * i / 10) for i in range(11)]
    return min(values), max(values)


def slowdown(model: Interference, method: str, jobs: int, smact: float) -> float:
    """Time over time alone of each of so many equal jobs."""
    job = Activity(smact)
    if method == "mig":
        return 1.0 / model.slice_speed(job, EVEN[jobs] * SLICE)
    return 1.0 / model.speeds([job] * jobs, method)[0]


def throughput(model: Interference, method: str, jobs: int, smact: float) -> float:
    """Work done by so many equal jobs together over one alone."""
    return jobs / slowdown(model, method, jobs, smact)


def large_throughput(model: Interference, jobs: int = 2) -> Range:
    """The same under MPS of large ones, over what their DRAM activity may be."""
    found = [
        jobs * model.speeds([Activity(LARGE[0], drama=LARGE[0] * part)] * jobs)[0]
        for part in ATTENTION
    ]
    return min(found), max(found)


def energy(model: Interference, method: str, jobs: int, smact: float) -> float:
    """Energy of a job among so many equal ones, over a job alone."""
    slow = slowdown(model, method, jobs, smact)
    together = A100.watts(jobs * smact / slow) * slow / jobs
    return together / A100.watts(smact)


def mixed(model: Interference, method: str, small: int, medium: int) -> tuple[float, float]:
    """Small jobs join medium ones, all equally long: per cent less total time than one after the
    other, and how many times slower a medium job gets by the small ones."""
    some, more = Activity(sum(SMALL) / 2), Activity(sum(MEDIUM) / 2)
    jobs = [more] * medium + [some] * small
    saved = 100 * (1 - _last_end(model, method, jobs) / len(jobs))
    with_small = model.speeds(jobs, method)[0]
    return saved, model.speeds([more] * medium, method)[0] / with_small


def _last_end(model: Interference, method: str, jobs: Sequence[Activity]) -> float:
    """When jobs of one unit of time alone have all ended, if they begin together."""
    left = [(job, 1.0) for job in jobs]
    now = 0.0
    while left:
        speeds = model.speeds([job for job, _ in left], method)
        step = min(todo / speed for (_, todo), speed in zip(left, speeds, strict=True))
        now += step
        left = [
            (job, todo - step * speed)
            for (job, todo), speed in zip(left, speeds, strict=True)
            if todo - step * speed > 1e-9
        ]
    return now


@dataclass(frozen=True, slots=True)
class Table2:
    """DLRM and ResNet152 together: hours of each and in all, and SM activity meanwhile (ratio)."""

    recommender_h: float
    resnet152_h: float
    total_h: float
    smact: float


def table_2(model: Interference, method: str, recommender_h: float, resnet152_h: float) -> Table2:
    """Both begin together; ResNet152 runs one epoch and ends, the recommender goes on alone."""
    jobs = (DLRM, RESNET152)
    if method == "mig":
        speeds = [model.slice_speed(job, 3 * SLICE) for job in jobs]
        shown = min(RESNET152.smact, 3 * SLICE)
    else:
        speeds = model.speeds(jobs, method)
        shown = min(1.0, sum(job.smact * v for job, v in zip(jobs, speeds, strict=True)))
    overlap_h = resnet152_h / speeds[1]
    alone = speeds[0] if method == "mig" else 1.0
    rest_h = max(0.0, recommender_h - overlap_h * speeds[0]) / alone
    both_h = overlap_h + rest_h
    return Table2(both_h, overlap_h, max(both_h, overlap_h), shown)
