# SPDX-License-Identifier: Apache-2.0
"""All GPUs of a node, sampled each second: memory, processes, power, profiling counters by GPM.

A GPU that is cut by MIG is sampled as its MIG devices. Handles are kept for a minute, then
asked for again; so is what a device did not support.
"""

import time
from dataclasses import dataclass, field
from typing import Any

from slurm_coloc.adapters.nvml import MIB, Missing, Nvml, as_text
from slurm_coloc.adapters.nvml.gpm import Gpm
from slurm_coloc.core.gpu.telemetry.reading import Profile
from slurm_coloc.errors import GpuError

REFRESH_S = 60.0


@dataclass(slots=True)
class Unit:
    """A GPU, or a MIG device of the GPU ``parent``. ``index``: NVML's number of the GPU; ``minor``:
    of /dev/nvidiaN, None where it is not known; ``gpu_uuid``: of the whole GPU; ``instance``
    and ``compute``: the MIG device's GPU instance and compute instance."""

    uuid: str
    index: int
    name: str
    handle: Any
    parent: Any = None
    instance: int | None = None
    without: dict[str, str] = field(default_factory=dict)
    busy_us: int = 0
    minor: int | None = None
    gpu_uuid: str = ""
    compute: int = 0

    @property
    def mig(self) -> bool:
        """Whether it is a MIG device."""
        return self.parent is not None


@dataclass(frozen=True, slots=True)
class Sample:
    """A device at one moment, its processes not yet with their jobs. ``processes``: MiB by pid;
    ``busy``: by pid, 0..1, the share of time with a kernel of this process; None where the driver
    does not report it. ``why``: reasons of what is None."""

    unit: Unit
    total_mib: int
    free_mib: int
    processes: dict[int, int]
    busy: dict[int, float] | None
    profile: Profile | None
    power_w: float | None
    energy_j: float | None
    why: dict[str, str]


class Sampling:
    """The devices of this node. ``lost``: those that do not answer, and NVML's words."""

    def __init__(self, lib: Nvml) -> None:
        self._lib = lib
        self._gpm = Gpm(lib)
        self._units: list[Unit] = []
        self._refreshed_s: float | None = None
        self.lost: dict[str, str] = {}

    def take(self, *, profile: bool) -> list[Sample]:
        """One sample of each device; ``profile``: with GPM's counters. Raises GpuError where NVML
        does not start at all."""
        now_s = time.monotonic()
        if self._refreshed_s is None or now_s - self._refreshed_s >= REFRESH_S:
            self._refresh()
            self._refreshed_s = now_s
        found = []
        for unit in self._units:
            try:
                found.append(self._sample(unit, profile=profile))
                self.lost.pop(unit.uuid, None)
            except GpuError as err:
                self.lost[unit.uuid] = err.message
        return found

    def _refresh(self) -> None:
        self._gpm.forget()
        before = {unit.uuid: unit for unit in self._units}
        units: list[Unit] = []
        for index in range(self._lib.call("nvmlDeviceGetCount")):
            # A lost neighbour must not hide the others.
            try:
                units += self._units_at(index)
            except GpuError as err:
                units += [unit for unit in self._units if unit.index == index]
                self.lost[f"index {index}"] = err.message
            else:
                self.lost.pop(f"index {index}", None)
        for unit in units:
            if unit.uuid in before:
                unit.busy_us = before[unit.uuid].busy_us
        self._units = units

    def _units_at(self, index: int) -> list[Unit]:
        call = self._lib.call
        handle = call("nvmlDeviceGetHandleByIndex", index)
        cut = self._lib.mig_handles(handle)
        gpu = as_text(call("nvmlDeviceGetUUID", handle))
        found = self._lib.minor(handle)
        minor = None if isinstance(found, Missing) else found
        if cut is None:
            name = as_text(call("nvmlDeviceGetName", handle))
            return [Unit(gpu, index, name, handle, minor=minor, gpu_uuid=gpu)]
        units = []
        for mig in cut:
            uuid, name = call("nvmlDeviceGetUUID", mig), call("nvmlDeviceGetName", mig)
            instance = int(call("nvmlDeviceGetGpuInstanceId", mig))
            one = Unit(as_text(uuid), index, as_text(name), mig, handle, instance)
            one.minor, one.gpu_uuid = minor, gpu
            one.compute = int(call("nvmlDeviceGetComputeInstanceId", mig))
            units.append(one)
        return units

    def _sample(self, unit: Unit, *, profile: bool) -> Sample:
        why: dict[str, str] = {}
        memory = self._lib.call("nvmlDeviceGetMemoryInfo", unit.handle)
        counters: Profile | None = None
        if profile:
            found = self._gpm.read(unit.uuid, unit.handle, unit.parent, unit.instance)
            if isinstance(found, Missing):
                why["smact"] = found.reason
            else:
                counters = found
        power = self._figure(unit, "nvmlDeviceGetPowerUsage", "power", why)
        energy = self._figure(unit, "nvmlDeviceGetTotalEnergyConsumption", "energy", why)
        return Sample(
            unit=unit,
            total_mib=int(memory.total) // MIB,
            free_mib=int(memory.free) // MIB,
            processes=self._processes(unit, why),
            busy=self._busy(unit, why),
            profile=counters,
            power_w=None if power is None else power / 1000,
            energy_j=None if energy is None else energy / 1000,
            why=why,
        )

    def _figure(self, unit: Unit, call: str, name: str, why: dict[str, str]) -> float | None:
        """A figure that a device may not have: then it is not asked for again."""
        if call not in unit.without:
            try:
                return float(self._lib.call(call, unit.handle))
            except GpuError as err:
                unit.without[call] = err.message
        why[name] = unit.without[call]
        return None

    def _processes(self, unit: Unit, why: dict[str, str]) -> dict[int, int]:
        """MiB by pid. MPS' clients are listed apart by some drivers, in both lists by others."""
        found: dict[int, int] = {}
        lists = ["nvmlDeviceGetComputeRunningProcesses"]
        apart = "nvmlDeviceGetMPSComputeRunningProcesses"
        if apart not in unit.without:
            lists.append(apart)
        for call in lists:
            try:
                running = self._lib.call(call, unit.handle)
            except GpuError as err:
                if call != apart:
                    raise
                unit.without[call] = err.message
                continue
            for one in running:
                if one.usedGpuMemory is None:
                    why["memory"] = "the driver does not report the memory of a process"
                mib = int(one.usedGpuMemory or 0) // MIB
                found[int(one.pid)] = max(mib, found.get(int(one.pid), 0))
        return found

    def _busy(self, unit: Unit, why: dict[str, str]) -> dict[int, float] | None:
        call = "nvmlDeviceGetProcessUtilization"
        if call not in unit.without:
            try:
                samples = self._lib.call(call, unit.handle, unit.busy_us)
            except GpuError as err:
                if "Not Found" in err.message:
                    return {}  # no process had a kernel since the last time
                unit.without[call] = err.message
            else:
                sums: dict[int, list[int]] = {}
                for one in samples:
                    # Entries without a time are those of nobody.
                    if one.timeStamp and one.smUtil <= 100:
                        sums.setdefault(int(one.pid), []).append(int(one.smUtil))
                        unit.busy_us = max(unit.busy_us, int(one.timeStamp))
                return {pid: sum(each) / len(each) / 100 for pid, each in sums.items()}
        why["split"] = unit.without[call]
        return None
