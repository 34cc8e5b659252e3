# SPDX-License-Identifier: Apache-2.0
"""What a model of interference says of the jobs of one GPU, remembered for each combination.

A plan is tried many times, and the same few trainings meet again and again on its GPUs; asking the
model each time would be most of the work. Kinds are small numbers for activities, so that a
combination is a sorted tuple.
"""

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.core.place.interference import Interference

Kinds = tuple[int, ...]

#: combinations that are remembered; all are dropped when there are more (some 100 MB at most)
MOST = 200_000


class Combos:
    """A memory of one model; it changes no answer, and may be dropped at any time."""

    def __init__(self, model: Interference) -> None:
        self.model = model
        self.activities: list[Activity] = []
        self._kinds: dict[Activity, int] = {}
        self._known: dict[tuple[str, float, Kinds], tuple[float, dict[int, float]]] = {}

    def kind(self, activity: Activity) -> int:
        """The number of an activity."""
        found = self._kinds.get(activity)
        if found is None:
            found = self._kinds[activity] = len(self.activities)
            self.activities.append(activity)
        return found

    def of(self, method: str, fraction: float, kinds: Kinds) -> tuple[float, dict[int, float]]:
        """(throughput: sum of SM activity times speed; speed of each kind) of one slot."""
        key = (method, fraction, kinds)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MOST:
                self._known.clear()
            found = self._known[key] = self._computed(method, fraction, kinds)
        return found

    def _computed(
        self, method: str, fraction: float, kinds: Kinds
    ) -> tuple[float, dict[int, float]]:
        jobs = [self.activities[kind] for kind in kinds]
        speeds = self.model.speeds(jobs, method) if len(jobs) > 1 else [1.0] * len(jobs)
        if fraction < 1.0:
            slices = [self.model.slice_speed(job, fraction) for job in jobs]
            speeds = [speed * part for speed, part in zip(speeds, slices, strict=True)]
        used = sum(job.smact * speed for job, speed in zip(jobs, speeds, strict=True))
        return used, dict(zip(kinds, speeds, strict=True))
