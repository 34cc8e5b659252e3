# SPDX-License-Identifier: Apache-2.0
"""What a plan knows of the jobs: their times, by their logs or their owners' earlier runs of the
same model with the same options, and how busy each keeps a GPU, as it was measured while it was
alone there. What one card measured says nothing of another one."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median, pstdev
from typing import TypeVar

from slurm_coloc.adapters.store import Store
from slurm_coloc.core.place.queued_jobs import Queued
from slurm_coloc.core.records.pairs import training_of
from slurm_coloc.core.records.runs import StoredDecision
from slurm_coloc.core.time.progress.past import left_after
from slurm_coloc.flow.cluster.telemetry import GpuNow, Live

#: seconds for which the answer about earlier runs is used again
FRESH_S = 60.0
#: standard deviation of the logarithm of a time: at least, and where one earlier run is known
LEAST, ONE = 0.1, 0.3
#: windows of telemetry for which a job is alone before its figure counts
SETTLED = 2
MOST = 4096
K = TypeVar("K")
V = TypeVar("V")
#: SM activities (ratio) that jobs beside others would have alone, by job and restart
Activities = Callable[[], Mapping[tuple[int, int], float]]


class JobFacts:
    """Reads them; each decision's earlier runs once a minute. ``window_s``: seconds over which the
    agents' figures are means."""

    def __init__(
        self,
        store: Store,
        live: Live,
        window_s: float,
        activities: Activities = dict,
    ) -> None:
        self._store, self._live, self._window_s = store, live, window_s
        self._beside = activities
        self._alone: dict[tuple[int, int], float] = {}
        # by UUID: who is on a GPU, and since when
        self._there: dict[str, tuple[frozenset[int], float]] = {}
        # of jobs that run: their SM activity by training and card, and by training all the seconds
        # that they take
        self._of_training: dict[tuple[str, str], float] = {}
        self._takes: dict[str, float] = {}
        self._cards: dict[Sequence[str], frozenset[str]] = {}
        self._known: dict[str, tuple[float, list[float]]] = {}

    def left_s(self, job: Queued, decision: str, training: str, now_s: float) -> float | None:
        """Seconds that a running job is expected to take still; None where nothing is known."""
        told = self._live.progress(job.nodes, job.job_id, job.restarts)
        if told is not None and told.left_s is not None:
            left_s = max(1.0, told.left_s - max(0.0, now_s - told.at_s))
            if job.start_s is not None:
                _note(self._takes, training, max(0.0, now_s - job.start_s) + left_s)
            return left_s
        if job.start_s is None:
            return None
        found = left_after(self._lasted(decision), now_s - job.start_s)
        return None if found is None else max(1.0, found[0])

    def smact(self, job: Queued, training: str) -> float | None:
        """The SM activity (ratio) that a running job had alone on its GPU, for as long as the
        figures are means over; else what another one of its ``training`` had last on such a card,
        or what its part of a GPU tells."""
        beat, run = self._live.of(job.nodes), (job.job_id, job.restarts)
        mine = [gpu for gpu in beat[1] if job.job_id in _ids(gpu)] if beat else []
        settled = [self._is_settled(gpu, job, beat[0]) for gpu in mine] if beat else []
        if settled and all(settled):
            busiest = max(mine, key=lambda gpu: gpu.smact or 0.0)
            _note(self._alone, run, busiest.smact or 0.0)
            if training:
                _note(self._of_training, (training, busiest.name), busiest.smact or 0.0)
        found = self._alone.get(run, self.expected_smact(training, (job.nodes,)))
        return self._beside().get(run) if found is None else found

    def _is_settled(self, gpu: GpuNow, job: Queued, at_s: float) -> bool:
        """Whether a GPU's figure is of this job at work: it has been alone there for twice as long
        as the figure is a mean over. In the first half it may have been starting, and the figure
        holds what a neighbour did that has left."""
        ids = _ids(gpu)
        known = self._there.get(gpu.uuid)
        if known is None or known[0] != ids:
            known = ids, at_s
            _note(self._there, gpu.uuid, known)
        settled = at_s - known[1] > SETTLED * self._window_s
        return settled and ids == {job.job_id} and gpu.smact is not None

    def expected_smact(self, training: str, nodes: Sequence[str]) -> float | None:
        """What a job of this ``training`` had last, alone on a card as one of these nodes has: the
        most of several; None where that is not known."""
        if not training or not self._of_training:
            return None
        known = (self._of_training.get((training, card)) for card in self._cards_of(nodes))
        return max((one for one in known if one is not None), default=None)

    def _cards_of(self, nodes: Sequence[str]) -> frozenset[str]:
        """NVML's names of the GPUs of these nodes, as their agents tell them."""
        found = self._cards.get(nodes)
        if found is None:
            beats = (self._live.of(node) for node in nodes)
            found = frozenset(gpu.name for beat in beats if beat for gpu in beat[1])
            _note(self._cards, nodes, found)
        return found

    def begin(self) -> None:
        """A new round: nodes and their cards come and go."""
        self._cards.clear()

    def expected(
        self, decision: str, training: str, limit_s: float | None
    ) -> tuple[float | None, float]:
        """Seconds that a waiting job is expected to run, and the standard deviation of their
        logarithm: by runs of its ``training`` that have ended, else by the log of one that runs,
        which may claim anything: up to the time limit. None where nothing is known."""
        lasted = [max(1.0, one) for one in self._lasted(decision)]
        if not lasted and training in self._takes:
            lasted = [max(1.0, min(self._takes[training], limit_s or math.inf))]
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


def owned_training(job: Queued, decision: StoredDecision) -> str:
    """OWNER:TRAINING; "" where the model is not known."""
    found = training_of(decision.fingerprint, decision.options)
    return f"{job.uid}:{found}" if found else ""


def _ids(gpu: GpuNow) -> frozenset[int]:
    """The jobs on a GPU."""
    return frozenset(one.job_id for one in gpu.jobs)


def _note(known: dict[K, V], name: K, value: V) -> None:
    """Remember a figure; none of a training that is not known."""
    if len(known) >= MOST:
        known.clear()
    if name:
        known[name] = value
