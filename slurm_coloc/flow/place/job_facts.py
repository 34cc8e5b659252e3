# SPDX-License-Identifier: Apache-2.0
"""What a plan knows of the jobs: their times, by their logs or their owners' earlier runs of the
same model with the same options, and how busy each keeps a GPU, as it was measured while it was
alone there."""

import math
import time
from statistics import median, pstdev

from slurm_coloc.adapters.store import Store
from slurm_coloc.core.place.queued_jobs import Queued
from slurm_coloc.core.time.progress.past import left_after
from slurm_coloc.flow.cluster.telemetry import Live
from slurm_coloc.flow.place.memory import key

#: seconds for which the answer about earlier runs is used again
FRESH_S = 60.0
#: standard deviation of the logarithm of a time: at least, and where one earlier run is known
LEAST, ONE = 0.1, 0.3
MOST = 4096


class JobFacts:
    """Reads them; each decision's earlier runs once a minute. ``window_s``: seconds over which the
    agents' figures are means."""

    def __init__(self, store: Store, live: Live, window_s: float) -> None:
        self._store, self._live, self._window_s = store, live, window_s
        self._alone: dict[tuple[int, int], float] = {}
        self._known: dict[str, tuple[float, list[float]]] = {}

    def left_s(self, job: Queued, decision: str, now_s: float) -> float | None:
        """Seconds that a running job is expected to take still; None where nothing is known."""
        told = self._live.progress(job.nodes, job.job_id, job.restarts)
        if told is not None and told.left_s is not None:
            return max(1.0, told.left_s - max(0.0, now_s - told.at_s))
        if job.start_s is None:
            return None
        found = left_after(self._lasted(decision), now_s - job.start_s)
        return None if found is None else max(1.0, found[0])

    def smact(self, job: Queued) -> float | None:
        """The SM activity (ratio) that a running job had alone on its GPU; None: it never was, for
        as long as the figures are means over."""
        beat = self._live.of(job.nodes)
        if beat and job.start_s is not None and beat[0] - job.start_s > self._window_s:
            for gpu in beat[1]:
                if [one.job_id for one in gpu.jobs] == [job.job_id] and gpu.smact is not None:
                    if len(self._alone) >= MOST:
                        self._alone.clear()
                    self._alone[key(job)] = gpu.smact
        return self._alone.get(key(job))

    def expected(self, decision: str) -> tuple[float | None, float]:
        """Seconds that a waiting job is expected to run, and the standard deviation of their
        logarithm; None where nothing is known."""
        lasted = [max(1.0, one) for one in self._lasted(decision)]
        if not lasted:
            return None, 0.0
        spread = ONE if len(lasted) == 1 else max(LEAST, pstdev(map(math.log, lasted)))
        return median(lasted), spread

    def _lasted(self, decision: str) -> list[float]:
        now = time.monotonic()
        at, found = self._known.get(decision, (-math.inf, []))
        if now - at > FRESH_S:
            if len(self._known) >= MOST:
                self._known.clear()
            found = self._store.queries.lasted_s(decision)
            self._known[decision] = now, found
        return found
