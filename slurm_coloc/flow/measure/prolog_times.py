# SPDX-License-Identifier: Apache-2.0
"""What the Prologs of this node's runs took, for metrics."""

from collections.abc import Iterable

from slurm_coloc.core.metrics import catalog
from slurm_coloc.core.metrics.series import Histogram
from slurm_coloc.flow.node.jobs_here import Job


class PrologTimes:
    """``times`` since the agent began."""

    def __init__(self) -> None:
        self.times = Histogram(catalog.PROLOG.bounds)
        self._counted: set[tuple[int, int, float]] = set()

    def see(self, jobs: Iterable[Job], *, before: bool) -> None:
        """Count each run of the node whose Prolog has ended once; not those that were there
        ``before`` the agent."""
        took = {
            (one.job_id, one.restart, one.began_s): one.prolog_s
            for one in jobs
            if one.prolog_s is not None
        }
        for run, took_s in took.items():
            if run not in self._counted and not before:
                self.times.see(took_s)
        self._counted = set(took)
