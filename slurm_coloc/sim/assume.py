# SPDX-License-Identifier: Apache-2.0
"""GPU memory and SM activity of jobs whose record tells neither: a stated assumption, by seed.

Both are drawn for each job, independently, from a Beta distribution: between nothing and all of a
GPU, with a mean that is assumed and a spread as wide as clusters show. What was recorded is used
instead.

- SM activity: Microsoft's 117,325 jobs kept their GPUs busy for 52 % of the time in the mean (Jeon
  et al., ATC 2019, GPU utilization). SM activity is below that, for utilization counts a GPU as
  busy when one kernel runs on one of its processors: 0.40 is the middle here, 0.25 and 0.60 the
  ends.
- Memory: of jobs that asked for 80 GB GPUs on Perlmutter 55 % used at most half of it (Cankur et
  al., arXiv 2502.18680): a mean of 0.45 of the GPU gives that; 0.25 and 0.65 are the ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from slurm_coloc.core.gpu.cards import GPU_TYPES
from slurm_coloc.core.place.activity import Activity
from slurm_coloc.errors import UsageFault
from slurm_coloc.sim.machine import DRIVER_MIB
from slurm_coloc.sim.past import Past, PastJob, counted, gpu_type
from slurm_coloc.sim.trace import TraceJob

#: means: SM activity (ratio), GPU memory (ratio of the GPU's)
SMACT = {"low": 0.25, "mid": 0.40, "high": 0.60}
MEMORY = {"low": 0.25, "mid": 0.45, "high": 0.65}
#: Beta's a + b: with 2.5 a mean of 0.45 leaves 55 % of the draws at or below one half.
SPREAD = 2.5
#: MiB of a CUDA context alone, the smallest that was measured (config: estimate.context_mib)
LEAST_MIB = 544
LEAST_SMACT = 0.02


@dataclass(frozen=True, slots=True)
class Assumed:
    """Means of what is drawn. ``joining``: part of the jobs of one GPU that ask to share."""

    smact: float = SMACT["mid"]
    memory: float = MEMORY["mid"]
    joining: float = 1.0


AVERAGE = Assumed()


@dataclass(frozen=True, slots=True)
class Filled:
    """A trace, and in ``said`` what was assumed to make it."""

    jobs: Sequence[TraceJob]
    said: Sequence[str]


def level(text: str, levels: dict[str, float], option: str) -> float:
    """low, mid, high or a mean of its own (ratio); raises UsageFault."""
    if text in levels:
        return levels[text]
    try:
        mean = float(text)
    except ValueError:
        mean = 0.0
    if not 0.0 < mean < 1.0:
        raise UsageFault(f"{option} {text}: one of {', '.join(levels)}, or a mean such as 0.5")
    return mean


def fill(past: Past, assumed: Assumed, seed: int, gpu_mib: int) -> Filled:
    """The runs as a trace. ``gpu_mib``: memory of the GPU of runs whose GPU the file does not name.
    Raises UsageFault where there is no run."""
    if not past.jobs:
        raise UsageFault("no run of a job with GPUs in this file")
    first_s = min(job.submit_s for job in past.jobs)
    ordered = sorted(past.jobs, key=lambda job: (job.submit_s, job.start_s))
    jobs = [
        _trace_job(number, job, assumed, seed, gpu_mib, first_s)
        for number, job in enumerate(ordered, 1)
    ]
    return Filled(jobs, _said(past.jobs, assumed, gpu_mib))


def _trace_job(
    number: int, job: PastJob, assumed: Assumed, seed: int, gpu_mib: int, first_s: float
) -> TraceJob:
    # Tasks of one array are runs of the same training: they draw the same.
    draw = Random(f"{seed}/{job.group or job.id}")
    smact = max(LEAST_SMACT, _beta(draw, assumed.smact))
    gpu_mib = _gpu_mib(job, gpu_mib)
    part = _beta(draw, assumed.memory)
    if job.smact is not None:
        smact = max(LEAST_SMACT, job.smact)
    elif job.shown_ratio is not None:
        smact = min(smact, max(LEAST_SMACT, job.shown_ratio))
    memory_mib = job.peak_mib or min(gpu_mib, max(LEAST_MIB, round(part * gpu_mib)))
    return TraceJob(
        id=number,
        name=job.group,
        submit_s=job.submit_s - first_s,
        gpus=job.gpus,
        run_s=job.run_s,
        memory_mib=memory_mib,
        activity=Activity(smact),
        user=job.user,
        account=job.account,
        limit_s=job.limit_s,
        coloc=job.gpus == 1 and draw.random() < assumed.joining,
        cpus=job.cpus,
        host_mib=job.host_mib,
    )


def _gpu_mib(job: PastJob, otherwise_mib: int) -> int:
    """What a program finds on the GPU that a run had (MiB)."""
    kind = GPU_TYPES.get(gpu_type(job.kind))
    return kind.total_mib - DRIVER_MIB if kind else otherwise_mib


def _beta(draw: Random, mean: float) -> float:
    return draw.betavariate(mean * SPREAD, (1.0 - mean) * SPREAD)


def _said(jobs: Sequence[PastJob], assumed: Assumed, gpu_mib: int) -> list[str]:
    known = sum(job.peak_mib is not None for job in jobs)
    bounded = sum(job.shown_ratio is not None for job in jobs)
    several = sum(job.gpus > 1 for job in jobs)
    said = []
    if known:
        said.append(f"GPU memory of {counted(known, 'run')}: as recorded")
    if known < len(jobs):
        sizes = sorted({_gpu_mib(job, gpu_mib) // 1024 for job in jobs if job.peak_mib is None})
        said.append(
            f"GPU memory of {counted(len(jobs) - known, 'run')}: not recorded, so drawn by chance,"
            f" {assumed.memory:.0%} of the GPU ({', '.join(map(str, sizes))} GiB) in the mean"
        )
    measured = sum(job.smact is not None for job in jobs)
    if measured:
        said.append(f"SM activity of {counted(measured, 'run')}: as measured")
    if measured < len(jobs):
        of = f" of {counted(len(jobs) - measured, 'run')}" if measured else ""
        said.append(
            f"SM activity{of} (how busy a job keeps a GPU): drawn by chance,"
            f" {assumed.smact:.0%} in the mean"
        )
    if bounded:
        said.append(f"of {counted(bounded, 'run')} at most the GPU utilization that was recorded")
    if several:
        said.append(f"{counted(several, 'run')} on several GPUs: whole GPUs, never shared")
    if assumed.joining < 1:
        said.append(f"{assumed.joining:.0%} of the jobs of one GPU ask to share it")
    return said
