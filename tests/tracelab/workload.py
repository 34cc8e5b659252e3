# SPDX-License-Identifier: Apache-2.0
"""The jobs of a trace, and what each reserves: the same for the lab and for the simulator."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from slurm_coloc.core.decide.decide import shards_needed
from slurm_coloc.core.decide.decision import Estimate, Sizing
from slurm_coloc.errors import UsageFault
from slurm_coloc.sim.estimates import request_maker
from slurm_coloc.sim.readers.trace_csv import read_trace
from slurm_coloc.sim.trace import TraceJob
from tests.paper import facts

EXAMPLE = Path(__file__).resolve().parents[2] / "etc" / "examples" / "simulate" / "trace.csv"
SHARD_MIB = 1024
#: colocd's defaults: at most eight jobs a GPU, SM activity takes no shards
SIZING = Sizing(SHARD_MIB, 8, None)


@dataclass(frozen=True, slots=True)
class Submission:
    """A job, and what is reserved for it: ``shards`` of each of its GPUs, or 0 for ``job.gpus``
    whole ones. ``smact``: SM activity that colocd expects of it; ``text``, ``words``: its summary
    and what else sbatch is told. Without a text it gets one that was made up for its shards
    (summaries.py), and the activity of that."""

    job: TraceJob
    shards: int
    smact: float | None = None
    text: str = ""
    words: tuple[str, ...] = ()

    @property
    def need_mib(self) -> int | None:
        """What is reserved (MiB); None for whole GPUs."""
        return self.shards * SHARD_MIB or None


def trace(name: str) -> list[TraceJob]:
    """``60`` and ``90``: the thesis' traces, from the folder of facts; ``example``: the one that is
    shipped; else a CSV file. The first job comes at 0. Raises UsageFault."""
    jobs = _read(name)
    first_s = min(job.submit_s for job in jobs)
    return [replace(job, submit_s=job.submit_s - first_s) for job in jobs]


def _read(name: str) -> list[TraceJob]:
    if name in facts.TRACES:
        folder = facts.folder()
        if folder is None:
            raise UsageFault(
                f"trace {name}: the thesis' traces are no part of this project; COLOC_FACTS names"
                " the folder with jobs_60.csv and jobs_90.csv. Else: example, or a CSV file"
            )
        return facts.trace(folder, name)
    return read_trace(EXAMPLE if name == "example" else Path(name))


def asked(
    jobs: Sequence[TraceJob],
    estimator: str,
    shards_per_gpu: int,
    *,
    shares: bool = True,
    several: bool = False,
) -> list[Submission]:
    """What each job reserves where so much is known of its memory: what --estimator of
    `coloc simulate` takes. ``shares``: False gives whole GPUs to all; ``several``: jobs of several
    GPUs share them. Raises UsageFault."""
    request_of = request_maker(estimator, jobs, Random(0), shards_per_gpu * SHARD_MIB)
    shared = [job for job in jobs if shares and job.coloc and (several or job.gpus == 1)]
    ids = {job.id for job in shared}
    return [
        Submission(job, _shards(request_of(job).need_mib, shards_per_gpu) if job.id in ids else 0)
        for job in jobs
    ]


def _shards(need_mib: int | None, shards_per_gpu: int) -> int:
    """As colocd sizes a share; what fills a GPU gets a whole one."""
    if need_mib is None:
        return 0
    shards = shards_needed(Estimate("trace", need_mib, need_mib), shards_per_gpu, SIZING)
    return shards if shards < shards_per_gpu else 0
