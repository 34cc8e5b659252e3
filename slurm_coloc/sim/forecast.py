# SPDX-License-Identifier: Apache-2.0
"""How long a job is expected to run: from ended runs of the same training, else its time limit."""

from dataclasses import dataclass, field
from statistics import fmean

from slurm_coloc.sim.trace import TraceJob


@dataclass(slots=True)
class Forecast:
    """``learns``: False knows time limits only, as Slurm does."""

    learns: bool = True
    seen: dict[tuple[str, int], list[float]] = field(default_factory=dict)

    def learn(self, job: TraceJob) -> None:
        """A job ended and its time alone is known."""
        if self.learns:
            runs = self.seen.setdefault((job.name, job.gpus), [])
            runs.append(job.run_s)
            del runs[:-8]

    def expect(self, job: TraceJob) -> float | None:
        """Seconds alone that a job is expected to run; None: nobody knows."""
        runs = self.seen.get((job.name, job.gpus)) if job.name else None
        if runs:
            expected = fmean(runs)
            return min(expected, job.limit_s) if job.limit_s is not None else expected
        return job.limit_s
