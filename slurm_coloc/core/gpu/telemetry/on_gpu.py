# SPDX-License-Identifier: Apache-2.0
"""A run's use of one GPU, added up from samples."""

from typing import Any

from slurm_coloc.core.gpu.telemetry.reading import How, Reading

Plain = dict[str, Any]


class Mean:
    """Sum and number of the samples that have the figure."""

    __slots__ = ("count", "total")

    def __init__(self, total: float = 0.0, count: int = 0) -> None:
        self.total = total
        self.count = count

    def add(self, value: float | None) -> None:
        if value is not None:
            self.total += value
            self.count += 1

    @property
    def value(self) -> float | None:
        """The mean; None without samples."""
        return round(self.total / self.count, 4) if self.count else None

    @classmethod
    def of(cls, value: float | None, count: int) -> "Mean":
        return cls() if value is None else cls(float(value) * count, count)


class OnGpu:
    """One run on one GPU."""

    def __init__(self) -> None:
        self.peak_mib = self.total_mib = 0
        self.mib, self.smact, self.smocc, self.dram = Mean(), Mean(), Mean(), Mean()
        self.smact_max: float | None = None
        self.how: How | None = None
        self.energy_j: float | None = None
        self.gpu_energy_j: float | None = None
        self.neighbours_max = 0

    def take(self, reading: Reading, job_id: int, energy_j: float | None) -> float | None:
        """Add a sample; ``energy_j``: of the GPU since the last one. Returns the run's activity."""
        mib = reading.mib_of(job_id)
        self.peak_mib, self.total_mib = max(self.peak_mib, mib), reading.total_mib
        self.mib.add(mib)
        profile, how = reading.profile, reading.how(job_id)
        # While this run holds no memory yet, none of the others' activity is its own.
        smact = reading.part(profile.smact, job_id) if reading.held else profile.smact
        if smact is not None:
            self.smact.add(smact)
            self.smact_max = max(smact, self.smact_max or 0.0)
            self.how = how if self.how in (None, how) else "split"
        alone = how != "split"
        self.smocc.add(profile.smocc if alone else None)
        self.dram.add(profile.dram if alone else None)
        self.neighbours_max = max(self.neighbours_max, len(reading.jobs.keys() - {job_id}))
        if energy_j is not None:
            own = reading.part(energy_j, job_id) if reading.held else energy_j
            self.energy_j = (self.energy_j or 0.0) + (own or 0.0)
            self.gpu_energy_j = (self.gpu_energy_j or 0.0) + energy_j
        return smact

    def plain(self, uuid: str) -> Plain:
        return {
            "uuid": uuid,
            "peak_mib": self.peak_mib,
            "total_mib": self.total_mib,
            "mean_mib": int(self.mib.total / self.mib.count) if self.mib.count else 0,
            "samples": self.mib.count,
            "smact_mean": self.smact.value,
            "smact_max": _rounded(self.smact_max, 4),
            "smact_samples": self.smact.count,
            "smocc_mean": self.smocc.value,
            "dram_mean": self.dram.value,
            "smact_how": self.how,
            "energy_j": _rounded(self.energy_j, 1),
            "gpu_energy_j": _rounded(self.gpu_energy_j, 1),
            "neighbours_max": self.neighbours_max,
        }

    @classmethod
    def of(cls, plain: Plain) -> "OnGpu":
        count = int(plain["samples"])
        active = int(plain["smact_samples"])
        made = cls()
        made.peak_mib = int(plain["peak_mib"])
        made.total_mib = int(plain.get("total_mib", 0))
        made.mib = Mean.of(plain["mean_mib"], count)
        made.smact = Mean.of(plain["smact_mean"], active)
        made.smact_max = plain["smact_max"]
        made.smocc = Mean.of(plain["smocc_mean"], active)
        made.dram = Mean.of(plain["dram_mean"], active)
        made.how = plain["smact_how"]
        made.energy_j = plain["energy_j"]
        made.gpu_energy_j = plain["gpu_energy_j"]
        made.neighbours_max = int(plain["neighbours_max"])
        return made


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
