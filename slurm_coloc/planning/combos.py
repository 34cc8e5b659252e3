# SPDX-License-Identifier: Apache-2.0
"""What a model of interference says of the jobs of one GPU, remembered for each combination.

A plan is tried many times, and the same few trainings meet again and again on its GPUs; asking the
model each time would be most of the work. Kinds are small numbers for activities, so that a
combination is a sorted tuple.
"""

from collections.abc import Mapping
from typing import NamedTuple

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.core.place.interference import Interference

Kinds = tuple[int, ...]


class Way(NamedTuple):
    """How the jobs of a slot share it: its ``method``, ``fraction`` of the SMs and ``card``, as in
    core/place/gpu_slot."""

    method: str = "mps"
    fraction: float = 1.0
    card: str = ""


#: combinations that are remembered; all are dropped when there are more (some 100 MB at most)
MOST = 200_000


class Combos:
    """A memory of one model; it changes no answer, and may be dropped at any time. ``on``: what to
    ask in its place of single cards."""

    def __init__(self, model: Interference, on: Mapping[str, Interference] | None = None) -> None:
        self.model = model
        self._on = on or {}
        self.activities: list[Activity] = []
        self._kinds: dict[Activity, int] = {}
        self._known: dict[tuple[Way, Kinds], tuple[float, dict[int, float]]] = {}

    def kind(self, activity: Activity) -> int:
        """The number of an activity."""
        found = self._kinds.get(activity)
        if found is None:
            found = self._kinds[activity] = len(self.activities)
            self.activities.append(activity)
        return found

    def of(self, way: Way, kinds: Kinds) -> tuple[float, dict[int, float]]:
        """(throughput: sum of SM activity times speed; speed of each kind) of one slot."""
        key = (way, kinds)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MOST:
                self._known.clear()
            found = self._known[key] = self._computed(way, kinds)
        return found

    def _computed(self, way: Way, kinds: Kinds) -> tuple[float, dict[int, float]]:
        jobs, model = [self.activities[kind] for kind in kinds], self._on.get(way.card, self.model)
        speeds = model.speeds(jobs, way.method) if len(jobs) > 1 else [1.0] * len(jobs)
        if way.fraction < 1.0:
            slices = [model.slice_speed(job, way.fraction) for job in jobs]
            speeds = [speed * part for speed, part in zip(speeds, slices, strict=True)]
        used = sum(job.smact * speed for job, speed in zip(jobs, speeds, strict=True))
        return used, dict(zip(kinds, speeds, strict=True))
