# SPDX-License-Identifier: Apache-2.0
"""The order of the queue by priority: age and fair share, in the spirit of Slurm's multifactor.

priority = age_weight * min(1, age / age_s) + share_weight * 2^(-usage / share), where usage is a
user's part of all recent GPU time and share his part were it divided equally among the users seen
so far (Slurm's classic fair-share formula with equal shares and a damping factor of 1). Recent:
with a half-life. A job that shares is charged for the part of its GPUs' memory that it reserved.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from slurm_coloc.core.place.gpu_slot import PlaceRequest
from slurm_coloc.sim.places import Run
from slurm_coloc.sim.setting import Priority


@dataclass(slots=True)
class Standing:
    """Who used how much, as of ``since_s`` (GPU seconds, decayed)."""

    rule: Priority
    used: dict[str, float] = field(default_factory=dict)
    since_s: float = 0.0
    _factors: dict[str, float] = field(default_factory=dict)

    def due(self, now_s: float) -> bool:
        """Whether it is time to compute anew."""
        return now_s - self.since_s >= self.rule.period_s

    def charge(self, runs: Iterable[Run], now_s: float) -> None:
        """Charge the jobs that run for the time since the last call, and let the past fade."""
        passed_s = now_s - self.since_s
        fade = 0.5 ** (passed_s / self.rule.half_life_s)
        for user in self.used:
            self.used[user] *= fade
        for run in runs:
            self.pay(run, max(0.0, now_s - max(run.start_s, self.since_s)))
        self.since_s = now_s
        total, users = sum(self.used.values()), max(1, len(self.used))
        self._factors = {
            user: 2.0 ** (-used / total * users) if total else 1.0
            for user, used in self.used.items()
        }

    def ended(self, run: Run, now_s: float) -> None:
        """A job ended between two calls of ``charge``."""
        self.pay(run, max(0.0, now_s - max(run.start_s, self.since_s)))

    def pay(self, run: Run, seconds: float) -> None:
        """Charge a job's user for so long."""
        request = run.request
        gpus = float(request.gpus)
        if request.share and request.need_mib is not None:
            gpus = sum(min(1.0, request.need_mib / slot.usable_mib) for slot in run.slots)
        self.used[request.user] = self.used.get(request.user, 0.0) + gpus * seconds

    def priority(self, request: PlaceRequest, now_s: float) -> float:
        """Higher goes first."""
        age = min(1.0, max(0.0, now_s - request.submit_s) / self.rule.age_s)
        share = self._factors.get(request.user, 1.0)
        return self.rule.age_weight * age + self.rule.share_weight * share
