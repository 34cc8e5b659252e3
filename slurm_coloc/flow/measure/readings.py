# SPDX-License-Identifier: Apache-2.0
"""A sample of every GPU and MIG device, with the job of each process and the best counters.

Counters come from DCGM first, then from NVML's GPM; the job of a process comes from adapters/procs.
"""

import time
from collections.abc import Callable, Mapping

from slurm_coloc.adapters.dcgm.counters import Dcgm
from slurm_coloc.adapters.nvml import Nvml
from slurm_coloc.adapters.nvml.sampling import Sample, Sampling
from slurm_coloc.adapters.procs.watch import Procs
from slurm_coloc.core.gpu.telemetry.reading import Held, Profile, Reading

FIGURES = ("smact", "smocc", "dram")
NONE = Profile()


class Readings:
    """``paused_by``: the job whose own profiler has the counters now."""

    def __init__(self, lib: Nvml, dcgm: Dcgm, procs: Procs) -> None:
        self._sampling = Sampling(lib)
        self._dcgm = dcgm
        self._procs = procs
        self._energy: dict[str, float] = {}
        self._known: set[str] = set()  # every device that was sampled so far
        self.paused_by: int | None = None

    @property
    def lost(self) -> dict[str, str]:
        """Devices that do not answer, and NVML's words."""
        return self._sampling.lost

    def take(self, uids: Mapping[int, int], see: Callable[[str, int], None]) -> list[Reading]:
        """``uids``: the owner of each job on this node; ``see``: gets the device and the pid of
        each process. Raises GpuError where NVML does not start."""
        without = not self._known or any(self._dcgm.read(uuid) is None for uuid in self._known)
        samples = self._sampling.take(profile=self.paused_by is None and without)
        self._known |= {sample.unit.uuid for sample in samples}
        mono_s = time.monotonic()
        return [self._reading(sample, uids, see, mono_s) for sample in samples]

    def _reading(
        self,
        sample: Sample,
        uids: Mapping[int, int],
        see: Callable[[str, int], None],
        mono_s: float,
    ) -> Reading:
        unit = sample.unit
        held = []
        for pid, mib in sample.processes.items():
            found = self._procs.find(pid, uids, mono_s)
            if found is None:
                continue  # it ended meanwhile
            see(unit.uuid, pid)
            if found.system:
                continue
            busy = None if sample.busy is None else sample.busy.get(pid, 0.0)
            held.append(Held(pid, found.start_s, mib, found.job_id, busy, found.started))
        device = (unit.index, unit.instance or 0) if unit.mig else unit.uuid
        by_dcgm = None if self.paused_by is not None else self._dcgm.read(device)
        profile, why = self._profile(sample, by_dcgm)
        return Reading(
            uuid=unit.uuid,
            name=unit.name,
            total_mib=sample.total_mib,
            free_mib=sample.free_mib,
            held=tuple(held),
            profile=profile,
            power_w=sample.power_w,
            energy_j=sample.energy_j,
            mig=unit.mig,
            index=unit.index,
            minor=unit.minor,
            gpu_uuid=unit.gpu_uuid,
            instance=unit.instance,
            compute=unit.compute,
            source="gpm" if by_dcgm is None else "dcgm",
            why=why,
        )

    def _profile(self, sample: Sample, by_dcgm: Profile | None) -> tuple[Profile, dict[str, str]]:
        """The counters and, where there are none, the reasons."""
        why = {name: text for name, text in sample.why.items() if name != "smact"}
        if self.paused_by is not None:
            return NONE, {"smact": f"paused: job {self.paused_by} uses a profiler"} | why
        if found := by_dcgm or sample.profile:
            return found, why
        return NONE, {"smact": "; ".join([self._dcgm.why, sample.why.get("smact", "")])} | why

    def spent(self, readings: list[Reading]) -> dict[str, float]:
        """Energy of each GPU (J) since the last sample; none after a gap, or where the counter
        fell."""
        found = {}
        for reading in readings:
            if reading.energy_j is None:
                continue
            before = self._energy.get(reading.uuid)
            if before is not None and reading.energy_j >= before:
                found[reading.uuid] = reading.energy_j - before
            self._energy[reading.uuid] = reading.energy_j
        return found


def sources(mine: list[Reading]) -> tuple[dict[str, str | None], dict[str, str]]:
    """Where the figures of a run on these devices come from, and why some are missing."""
    found: dict[str, str | None] = {"memory": "nvml" if mine else None}
    why: dict[str, str] = {} if mine else {"memory": "no sample of its GPUs"}
    by = "dcgm" if any(one.source == "dcgm" for one in mine) else "gpm"
    for name in FIGURES:
        known = any(getattr(one.profile, name) is not None for one in mine)
        found[name] = by if known else None
    found["energy"] = "nvml" if any(one.energy_j is not None for one in mine) else None
    for one in mine:
        why |= one.why
    return found, why
