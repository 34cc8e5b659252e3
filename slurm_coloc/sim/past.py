# SPDX-License-Identifier: Apache-2.0
"""What an accounting file records of jobs that ran: times and GPUs, seldom memory or activity."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import ceil

from slurm_coloc.core.gpu.cards import GPU_TYPES
from slurm_coloc.sim.machine import ALIASES


@dataclass(frozen=True, slots=True)
class PastJob:
    """One run of a job. Times in seconds on the file's own clock.

    ``group``: what runs of the same training have in common (an array's id); "" for none.
    ``gpus``: whole ones; a job in shards counts as one GPU, of which it had ``share_mib``.
    ``kind``: GPU type as the file writes it, "" where it does not. ``peak_mib``: recorded peak of
    GPU memory on each of its GPUs;
    ``shown_ratio``: the highest GPU utilization that was recorded (NVML's number, not SM activity);
    ``smact``: measured mean SM activity; None: not recorded.
    """

    id: str
    submit_s: float
    start_s: float
    run_s: float
    gpus: int
    user: str = ""
    account: str = ""
    group: str = ""
    kind: str = ""
    limit_s: float | None = None
    cpus: int = 0
    host_mib: int = 0
    peak_mib: int | None = None
    shown_ratio: float | None = None
    smact: float | None = None
    share_mib: int | None = None

    @property
    def end_s(self) -> float:
        """When it ended."""
        return self.start_s + self.run_s


@dataclass(frozen=True, slots=True)
class Past:
    """A file's runs, and in ``notes`` what was left out of it or read in a certain way."""

    jobs: Sequence[PastJob]
    notes: Sequence[str] = ()


def most_at_once(jobs: Iterable[PastJob], gpu_mib: int | None = None) -> int:
    """The most GPUs that were in use at one moment. ``gpu_mib``: of a GPU of which shares are
    counted by their memory; None: as GPUs."""

    def gpus(job: PastJob) -> Fraction:
        if gpu_mib is None or job.share_mib is None:
            return Fraction(job.gpus)
        return min(Fraction(1), Fraction(job.share_mib, gpu_mib))

    changes = sorted(
        change
        for job in jobs
        if job.run_s > 0
        for change in ((job.end_s, -gpus(job)), (job.start_s, gpus(job)))
    )
    used = most = Fraction(0)
    for _, change in changes:
        used += change
        most = max(most, used)
    return ceil(most)


@cache
def gpu_type(kind: str) -> str:
    """The type that the simulator knows by Slurm's name for it (a100, nvidia_a100-sxm4-80gb); ""
    where it knows none."""
    words = kind.lower().replace("_", "-")
    words = ALIASES.get(words, words)
    if words in GPU_TYPES or not words:
        return words
    found = [name for name in GPU_TYPES if all(part in words for part in name.split("-"))]
    found += [ALIASES[name] for name in ALIASES if name in words]
    return found[0] if found else ""


def notes(*counts: tuple[int, str, str]) -> list[str]:
    """What was left out or read in a certain way: (number, of what, what about it), none for 0."""
    return [f"{counted(number, one)} {text}" for number, one, text in counts if number]


def counted(number: int, one: str, many: str = "") -> str:
    """``1 job``, ``3 jobs``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
