# SPDX-License-Identifier: Apache-2.0
"""MIG devices of this node: what NVML tells of them, and which device file lets a job use one.

A MIG device is a compute instance inside a GPU instance. Two device files guard it
(/dev/nvidia-caps/nvidia-capN, N for the GPU instance and N for the compute instance); the numbers
are fixed by the driver for each GPU minor, GPU instance and compute instance, and stand in
/proc/driver/nvidia-caps/mig-minors (NVIDIA's MIG user guide, "Device Nodes and Capabilities").
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from slurm_coloc.adapters.nvml import MIB, Missing, Nvml, as_text
from slurm_coloc.core.gpu.mig import CARDS, kind_of
from slurm_coloc.errors import GpuError

MINORS = Path("/proc/driver/nvidia-caps/mig-minors")
CAPS = "/dev/nvidia-caps/nvidia-cap"
Caps = Mapping[tuple[int, int, int | None], int]
_LINE = r"gpu(\d+)/gi(\d+)(?:/ci(\d+))?/access (\d+)"


class MigDevice(NamedTuple):
    """One MIG device. ``profile`` as gres.conf's Type names it (1g.5gb, 2c.3g.20gb); ``total_mib``,
    ``free_mib`` of its memory, which the compute instances of one GPU instance share; ``sms``: its
    own SMs; ``fraction``: of the GPU's (0 to 1, None for a card that is not known)."""

    uuid: str
    parent_uuid: str
    parent_minor: int
    parent_pci_bus_id: str
    parent_index: int
    gi: int
    ci: int
    profile: str
    sms: int
    fraction: float | None
    total_mib: int
    free_mib: int
    gi_cap: int
    ci_cap: int

    @property
    def files(self) -> tuple[str, str, str]:
        """The GPU's device file, the GPU instance's and the compute instance's."""
        return (
            f"/dev/nvidia{self.parent_minor}",
            f"{CAPS}{self.gi_cap}",
            f"{CAPS}{self.ci_cap}",
        )


class MigGpu(NamedTuple):
    """A GPU in MIG mode, cut or not."""

    uuid: str
    nvml_index: int
    minor: int
    name: str
    devices: tuple[MigDevice, ...]


def cap_minor(gpu: int, gi: int, ci: int | None = None) -> int:
    """Minor number of the device file of an instance, by the driver's fixed scheme: 3 + 135 a GPU
    + 9 a GPU instance, then the GPU instance itself and its eight compute instances
    (gpu31/gi14/ci7 is 4322 in NVIDIA's list)."""
    return 3 + 135 * gpu + 9 * gi + (0 if ci is None else 1 + ci)


def read_caps(path: Path = MINORS) -> Caps:
    """(GPU minor, GPU instance, compute instance or None) -> minor number, as the driver lists
    them; {} where there is no list."""
    try:
        text = path.read_text("ascii", "replace")
    except OSError:
        return {}
    return {
        (int(gpu), int(gi), int(ci) if ci else None): int(minor)
        for gpu, gi, ci, minor in re.findall(_LINE, text)
    }


class Mig:
    """MIG devices, by a library that is at hand."""

    def __init__(self, lib: Nvml, minors: Path = MINORS) -> None:
        self._lib = lib
        self._call = lib.call
        self._minors = minors

    def gpus(self) -> list[MigGpu]:
        """The GPUs that are in MIG mode, in NVML's order; a GPU that is lost or busy counts as not
        cut. Raises GpuError where NVML does not start."""
        caps = read_caps(self._minors)
        found = []
        for index in range(self._call("nvmlDeviceGetCount")):
            gpu = self._lib.maybe(self._gpu, index, caps)
            if gpu is not None and not isinstance(gpu, Missing):
                found.append(gpu)
        return found

    def _gpu(self, index: int, caps: Caps) -> MigGpu | None:
        handle = self._call("nvmlDeviceGetHandleByIndex", index)
        cut = self._lib.mig_handles(handle)
        if cut is None:
            return None
        minor = int(self._call("nvmlDeviceGetMinorNumber", handle))
        name = as_text(self._call("nvmlDeviceGetName", handle))
        uuid = as_text(self._call("nvmlDeviceGetUUID", handle))
        parent = {
            "parent_uuid": uuid,
            "parent_minor": minor,
            "parent_pci_bus_id": as_text(self._call("nvmlDeviceGetPciInfo", handle).busId),
            "parent_index": index,
        }
        kind = kind_of(name, int(self._call("nvmlDeviceGetMemoryInfo", handle).total) // MIB)
        found = tuple(self._device(mine, parent, kind, caps) for mine in cut)
        return MigGpu(uuid, index, minor, name, found)

    def _device(
        self, handle: Any, parent: Mapping[str, Any], kind: str | None, caps: Caps
    ) -> MigDevice:
        gi = int(self._call("nvmlDeviceGetGpuInstanceId", handle))
        ci = int(self._call("nvmlDeviceGetComputeInstanceId", handle))
        has = self._call("nvmlDeviceGetAttributes_v2", handle)
        memory = self._call("nvmlDeviceGetMemoryInfo", handle)
        name = as_text(self._call("nvmlDeviceGetName", handle))
        sms = int(has.multiprocessorCount)
        gpu = parent["parent_minor"]
        return MigDevice(
            uuid=as_text(self._call("nvmlDeviceGetUUID", handle)),
            **parent,
            gi=gi,
            ci=ci,
            profile=_profile(name),
            sms=sms,
            fraction=sms / CARDS[kind].sms if kind else None,
            total_mib=int(memory.total) // MIB,
            free_mib=int(memory.free) // MIB,
            gi_cap=caps.get((gpu, gi, None), cap_minor(gpu, gi)),
            ci_cap=caps.get((gpu, gi, ci), cap_minor(gpu, gi, ci)),
        )


def _profile(name: str) -> str:
    """``1g.5gb`` of ``NVIDIA A100-SXM4-40GB MIG 1g.5gb``; media engines are left out of it, for
    gres.conf's Type and nvidia-smi spell them apart."""
    return re.split(r"[+]", name.rpartition(" ")[2])[0]


def mig_uuid(gres_type: str, files: Sequence[str], cut: Sequence[MigGpu]) -> str:
    """The UUID of the MIG device whose compute instance has one of the device ``files`` of a gres.
    Raises GpuError."""
    named = {file for file in files if file.startswith(CAPS)}
    for gpu in cut:
        for device in gpu.devices:
            if device.files[2] in named:
                return device.uuid
    if not named:
        # 22.05 takes each name of MultipleFiles for a GPU of its own; jobs then start without any.
        raise GpuError(
            f"gres {gres_type} has no device file of a compute instance ({CAPS}N):"
            " write File=, not MultipleFiles=, in gres.conf of Slurm 22.05"
        )
    raise GpuError(
        f"no MIG device is behind {', '.join(sorted(named))}: the GPUs were cut anew since"
        " gres.conf was written"
    )
