# SPDX-License-Identifier: Apache-2.0
"""How the GPUs of a node are: means of the last seconds (90 by default), and the jobs on each."""

from collections.abc import Iterable, Mapping
from typing import Any

from slurm_coloc.core.gpu.telemetry.reading import Reading
from slurm_coloc.core.gpu.telemetry.window import SPAN_S, Window
from slurm_coloc.flow.node.jobs_here import Job

MOST_JOBS = 48  # of one GPU in a heartbeat; MPS takes no more clients
PROFILE = ("smact", "smocc", "dram", "pcie_tx_mib_s", "pcie_rx_mib_s")
FIGURES = (*PROFILE, "power_w")


class RollingMean:
    """Kept from sample to sample. ``figures``: a dictionary for each device, as colocd takes it;
    ``on_gpus``: the last sample of each device, with the jobs there."""

    def __init__(self, window_s: float = SPAN_S) -> None:
        """``window_s``: seconds that the means are of."""
        self._window_s = window_s
        self._windows: dict[str, dict[str, Window]] = {}
        self.on_gpus: list[tuple[Reading, tuple[int, ...]]] = []
        self._parts: dict[tuple[str, int], Window] = {}
        self.figures: list[dict[str, Any]] = []

    def take(self, readings: list[Reading], jobs: Iterable[Job], at_s: float) -> None:
        """One sample. ``jobs``: those of this node; ``at_s``: monotonic."""
        there = list(jobs)
        figures = []
        on_gpus = []
        parts, self._parts = self._parts, {}
        for reading in readings:
            windows = self._of(reading.uuid)
            for name in PROFILE:
                windows[name].add(at_s, getattr(reading.profile, name))
            windows["power_w"].add(at_s, reading.power_w)
            held = reading.jobs
            ids = sorted(held.keys() | {job.job_id for job in there if reading.uuid in job.uuids})
            on_gpus.append((reading, tuple(ids)))
            for one in held:
                window = self._parts[reading.uuid, one] = parts.get(
                    (reading.uuid, one), Window(self._window_s)
                )
                window.add(at_s, reading.part(reading.profile.smact, one))
            figures.append(
                {
                    "uuid": reading.uuid,
                    "index": reading.index,
                    "minor": reading.minor,
                    "name": reading.name[:64],
                    "total_mib": reading.total_mib,
                    "free_mib": reading.free_mib,
                    **{name: _rounded(window.mean) for name, window in windows.items()},
                    "jobs": [
                        {"job_id": one, "mib": held.get(one, 0), "smact": self._part(reading, one)}
                        for one in ids[:MOST_JOBS]
                    ],
                    "foreign_mib": reading.foreign_mib,
                    "why": reading.why.get("smact", "")[:160],
                }
            )
        self.on_gpus, self.figures = on_gpus, figures

    def _of(self, uuid: str) -> dict[str, Window]:
        """The windows of a device."""
        if uuid not in self._windows:
            self._windows[uuid] = {name: Window(self._window_s) for name in FIGURES}
        return self._windows[uuid]

    def _part(self, reading: Reading, job_id: int) -> float | None:
        """A job's part of the activity since it holds memory there."""
        window = self._parts.get((reading.uuid, job_id))
        return _rounded(window.mean) if window else None

    def mapping(self, numbers: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """The jobs of each GPU, by its number in ``numbers``, else by NVML's; of a MIG device by
        that and its GPU instance id: 0.7."""
        found: dict[str, tuple[int, ...]] = {}
        for reading, jobs in self.on_gpus:
            number = numbers.get(reading.gpu_uuid, reading.index)
            name = f"{number}.{reading.instance}" if reading.mig else str(number)
            # Several compute instances may be in one GPU instance.
            found[name] = tuple(sorted({*found.get(name, ()), *jobs}))
        return found


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
