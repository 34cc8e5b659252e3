# SPDX-License-Identifier: Apache-2.0
"""What came out of one simulated trace."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from slurm_coloc.core.place.gpu_slot import PlaceRequest
from slurm_coloc.sim.telemetry import History
from slurm_coloc.sim.trace import TraceJob

#: figures of the mean wait by what a job wants
SHARES, WHOLE, SEVERAL = BY_SIZE = ("mean_wait_share_s", "mean_wait_one_s", "mean_wait_several_s")


@dataclass(slots=True)
class Record:
    """One job's story. ``start_s``: of its first run. ``last_s``: length of the run that ended it.
    ``ran_s``: of all its runs."""

    job: TraceJob
    request: PlaceRequest | None = None
    start_s: float | None = None
    end_s: float | None = None
    last_s: float = 0.0
    ran_s: float = 0.0
    tries: int = 0
    oom: int = 0
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """A run on one slot, for pictures. ``need_mib``: what was reserved; None: the whole slot, or
    nothing where its need was not known."""

    job_id: int
    slot: int
    start_s: float
    end_s: float
    need_mib: int | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of a whole trace; ``joules``: of all GPUs until the last end. ``shared_timeouts``: jobs that
    would have ended in time alone. ``pieces`` and ``tracks`` (what happened on each slot) are there
    where the setting records them."""

    records: Sequence[Record]
    oom: int
    timeouts: int
    shared_timeouts: int
    joules: float
    pieces: Sequence[Piece] = ()
    tracks: Sequence[History] = ()

    @property
    def makespan_s(self) -> float:
        """From the trace's beginning to the last end."""
        return max((record.end_s or 0.0 for record in self.records), default=0.0)

    def figures(self) -> dict[str, float]:
        """The figures of DESIGN.md's contract, in its units."""
        done = [record for record in self.records if record.end_s is not None]
        waits = [_wait(record) for record in done]
        slow = sorted(record.last_s / record.job.run_s for record in done if record.job.run_s > 0)
        ends = [(record.end_s or 0.0) - record.job.submit_s for record in done]
        plain = sorted(_wait(record) for record in done if not record.job.coloc)
        out = {
            "makespan_s": self.makespan_s,
            "mean_wait_s": fmean(waits) if waits else 0.0,
            "p95_wait_s": quantile(sorted(waits), 0.95),
            "mean_exec_s": fmean(record.ran_s for record in done) if done else 0.0,
            "mean_jct_s": fmean(ends) if ends else 0.0,
            "mean_slowdown": fmean(slow) if slow else 1.0,
            "p95_slowdown": quantile(slow, 0.95) if slow else 1.0,
            "oom": float(self.oom),
            "timeouts": float(self.timeouts),
            "timeouts_by_sharing": float(self.shared_timeouts),
            "energy_mj": self.joules / 1e6,
        }
        if plain:
            out["p95_wait_plain_s"] = quantile(plain, 0.95)
        return out | self._waits_by_size(done)

    def _waits_by_size(self, done: Sequence[Record]) -> dict[str, float]:
        """Mean waits of those jobs that there are: for a share, for one whole GPU, for several."""
        found: dict[str, list[float]] = {}
        for record in done:
            job = record.job
            name = SEVERAL if job.gpus > 1 else SHARES if job.coloc else WHOLE
            found.setdefault(name, []).append(_wait(record))
        return {name: fmean(found[name]) for name in BY_SIZE if name in found}


def _wait(record: Record) -> float:
    """Seconds between submission and end in which the job did not run."""
    return max(0.0, (record.end_s or 0.0) - record.job.submit_s - record.ran_s)


def quantile(ranked: Sequence[float], part: float) -> float:
    """The value that ``part`` of a sorted list does not pass; 0 of an empty one."""
    if not ranked:
        return 0.0
    return ranked[min(len(ranked) - 1, int(part * len(ranked)))]
