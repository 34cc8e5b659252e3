# SPDX-License-Identifier: Apache-2.0
"""Critical errors ("Xids") as the driver reports them, waited for by NVML's event sets.

Events are of whole GPUs; where one is cut by MIG the driver may tell the instance. The driver keeps
what comes between two waits. For a thread of its own, with an Nvml of its own: NVML counts who has
started it, so that another's end does not take the library away under a wait.
"""

import ctypes
from dataclasses import dataclass
from typing import Any

from slurm_coloc.adapters.nvml import Nvml, as_text
from slurm_coloc.errors import GpuError

KIND = "nvmlEventTypeXidCriticalError"
NO_INSTANCE = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Xid:
    """``uuids``: the GPU and those of its MIG devices that it concerns."""

    number: int
    uuid: str
    uuids: frozenset[str]


class Events:
    """Xids of all GPUs of this node. ``why``: reasons of GPUs that report none, by index."""

    def __init__(self, lib: Nvml) -> None:
        self._lib = lib
        self._set: Any = None
        self._uuids: dict[int | None, str] = {}  # by handle: a lost GPU no longer says its own
        self.why: dict[int, str] = {}

    def open(self) -> int:
        """Register every GPU; the number of those that report Xids. Raises GpuError where the
        driver knows no events at all."""
        call = self._lib.call
        count = int(call("nvmlDeviceGetCount"))
        kind = self._lib.constant(KIND)
        self._set = call("nvmlEventSetCreate")
        self.why, self._uuids = {}, {}
        for index in range(count):
            try:
                handle = call("nvmlDeviceGetHandleByIndex", index)
                if not int(call("nvmlDeviceGetSupportedEventTypes", handle)) & kind:
                    self.why[index] = "this GPU does not report Xids"
                    continue
                call("nvmlDeviceRegisterEvents", handle, kind, self._set)
                self._uuids[_address(handle)] = as_text(call("nvmlDeviceGetUUID", handle))
            except GpuError as err:
                self.why[index] = err.message
        return count - len(self.why)

    def close(self) -> None:
        """Give the set back; ``open`` makes a new one."""
        taken, self._set = self._set, None
        if taken is not None:
            self._lib.maybe(self._lib.call, "nvmlEventSetFree", taken)
        self._lib.close()

    def wait(self, limit_s: float) -> Xid | None:
        """The next Xid; None where none came within ``limit_s``. Raises GpuError."""
        try:
            data = self._lib.call("nvmlEventSetWait_v2", self._set, int(limit_s * 1000))
        except GpuError as err:
            if getattr(err.__cause__, "value", None) == self._lib.constant("NVML_ERROR_TIMEOUT"):
                return None
            raise
        if data.eventType != self._lib.constant(KIND):
            return None
        uuid = self._uuids.get(_address(data.device)) or as_text(
            self._lib.call("nvmlDeviceGetUUID", data.device)
        )
        return Xid(int(data.eventData), uuid, self._concerned(uuid, data))

    def _concerned(self, uuid: str, data: Any) -> frozenset[str]:
        call = self._lib.call
        found = {uuid}
        # Asked anew: an admin may have cut the GPU since.
        for mig in self._lib.mig_handles(data.device) or ():
            gi = call("nvmlDeviceGetGpuInstanceId", mig)
            ci = call("nvmlDeviceGetComputeInstanceId", mig)
            if data.gpuInstanceId in (NO_INSTANCE, gi) and data.computeInstanceId in (
                NO_INSTANCE,
                ci,
            ):
                found.add(as_text(call("nvmlDeviceGetUUID", mig)))
        return frozenset(found)


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value
