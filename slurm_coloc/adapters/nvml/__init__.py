# SPDX-License-Identifier: Apache-2.0
"""The one place where NVML is called: lazy start, errors mapped, "not available" with a reason.

Every call goes through ``call``. A missing library, a lost GPU or a busy driver raises GpuError
from the functions here; what one device or driver does not tell is a ``Missing`` with its reason,
never 0.
"""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

from slurm_coloc.core.gpu.peak import Use
from slurm_coloc.errors import GpuError

PROC_GPUS = Path("/proc/driver/nvidia/gpus")
MIB = 2**20
US = 1e-6  # accounting tells microseconds since the epoch, and milliseconds of run time
MS = 1e-3
#: NVML_DEVICE_MEMORY_LIMIT_MAX
NO_LIMIT = 2**64 - 1
MOST_ON_A_GPU = (
    16  # MIG devices; NVML itself says how many, but a driver that lies must hold nobody
)
T = TypeVar("T")
P = ParamSpec("P")


class Missing(NamedTuple):
    """A value that NVML did not give, and why."""

    reason: str


class Process(NamedTuple):
    """A compute process on a GPU; ``used_mib`` as nvidia-smi's used_gpu_memory."""

    pid: int
    used_mib: int | Missing


class Gpu(NamedTuple):
    """One GPU as it is now. Memory in MiB, rounded down; nvidia-smi: memory.total, free, used."""

    uuid: str
    minor: int | Missing
    pci_bus_id: str
    name: str
    total_mib: int
    free_mib: int
    used_mib: int
    processes: tuple[Process, ...] | Missing


class Nvml:
    """NVML, started at the first question. Use as a context manager."""

    def __init__(self, proc_gpus: Path = PROC_GPUS) -> None:
        self._proc_gpus = proc_gpus
        self._lib: Any = None
        self._lost: list[str] = []  # devices that did not answer in a scan

    def __enter__(self) -> "Nvml":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End NVML; the next question starts it again."""
        if self._lib is not None:
            try:
                self._lib.nvmlShutdown()
            except self._lib.NVMLError:
                pass  # nothing is left to be done with it
            self._lib = None

    def by_minor(self, minors: Sequence[int]) -> list[Gpu]:
        """The GPUs of these device files (/dev/nvidia<minor>), in order. Raises GpuError."""
        bus_ids = _proc_bus_ids(self._proc_gpus)
        by_scan: dict[int, Any] | None = None
        found = []
        for minor in minors:
            handle: Any = Missing("not in /proc/driver/nvidia")
            if minor in bus_ids:
                bus_id = bus_ids[minor].encode("ascii")
                handle = self.maybe(self.call, "nvmlDeviceGetHandleByPciBusId", bus_id)
            if isinstance(handle, Missing):
                # The index in NVML's order is not the minor number: ask each device for its own.
                by_scan = self._handles_by_minor() if by_scan is None else by_scan
                if minor not in by_scan:
                    why = "".join(f"; {text}" for text in self._lost)
                    raise GpuError(f"NVML does not show /dev/nvidia{minor}{why}", "gpu-unknown")
                handle = by_scan[minor]
            found.append(self._gpu(handle))
        return found

    def by_uuid(self, uuids: Sequence[str]) -> list[Gpu]:
        """The GPUs (or MIG devices) with these UUIDs, in order. Raises GpuError."""
        return [self._gpu(self._handle(uuid)) for uuid in uuids]

    def _handle(self, uuid: str) -> Any:
        return self.call("nvmlDeviceGetHandleByUUID", uuid.encode("ascii"))

    def accounted(self, uuid: str, pids: Collection[int] | None = None) -> list[Use]:
        """Processes that took memory of this GPU and that the driver remembers, ended or not; those
        of ``pids`` alone, where it is given. Raises GpuError, also where accounting mode is off
        (`nvidia-smi -am 1` switches it on)."""
        handle = self._accounting(uuid)
        found = []
        if pids is None:
            pids = dict.fromkeys(self.call("nvmlDeviceGetAccountingPids", handle))
        for pid in pids:
            stats = self.maybe(self.call, "nvmlDeviceGetAccountingStats", handle, pid)
            if isinstance(stats, Missing) or stats.maxMemoryUsage is None:
                continue  # it left the driver's buffer meanwhile
            start_s = stats.startTime * US
            end_s = None if stats.isRunning else start_s + stats.time * MS
            found.append(Use(int(pid), start_s, end_s, -(-int(stats.maxMemoryUsage) // MIB)))
        return found

    def accounted_pids(self, uuid: str) -> list[int]:
        """Every pid that the accounting of this GPU remembers, the same perhaps twice. Raises
        GpuError."""
        return [
            int(pid) for pid in self.call("nvmlDeviceGetAccountingPids", self._accounting(uuid))
        ]

    def _accounting(self, uuid: str) -> Any:
        """The handle of a GPU whose accounting mode is on. Raises GpuError for any other."""
        handle = self._handle(uuid)
        if not self.call("nvmlDeviceGetAccountingMode", handle):
            raise GpuError("accounting mode is off: nvidia-smi -am 1", "nvml")
        return handle

    def not_accounted(self) -> list[str]:
        """UUIDs of the GPUs whose accounting mode is off or not supported. Raises GpuError."""
        found = []
        for index in range(self.call("nvmlDeviceGetCount")):
            handle = self.call("nvmlDeviceGetHandleByIndex", index)
            mode = self.maybe(self.call, "nvmlDeviceGetAccountingMode", handle)
            if isinstance(mode, Missing) or not mode:
                found.append(as_text(self.call("nvmlDeviceGetUUID", handle)))
        return found

    def all(self) -> list[Gpu]:
        """Every GPU in NVML's order. Raises GpuError."""
        count = self.call("nvmlDeviceGetCount")
        return [self._gpu(self.call("nvmlDeviceGetHandleByIndex", i)) for i in range(count)]

    def driver(self) -> str:
        """The driver's version, "" where it is not known."""
        found = self.maybe(lambda: as_text(self.call("nvmlSystemGetDriverVersion")))
        return "" if isinstance(found, Missing) else found

    def limit_group(self, uuid: str, folder: str, hard_mib: int) -> None:
        """Let a cgroup (v2, by its folder) have this much of a GPU's memory, nothing reserved.
        Needs root and a driver from r615 on; not of MIG devices. Raises GpuError."""
        limits = self._struct("c_nvmlSetMemoryLimits_v1_t")
        limits.nameSpace = folder.encode()
        limits.softLimit, limits.hardLimit = 0, hard_mib * MIB
        self.call("nvmlDeviceSetMemoryLimits_v1", self._handle(uuid), limits)

    def group_limit_mib(self, uuid: str, folder: str) -> int | None:
        """A cgroup's hard limit on a GPU's memory; None where it has none, or where the driver does
        not tell one that was never set from an unknown kind. Raises GpuError."""
        limits = self._struct("c_nvmlGetMemoryLimits_v1_t")
        limits.nameSpace = folder.encode()
        handle = self._handle(uuid)
        try:
            self.call("nvmlDeviceGetMemoryLimits_v1", handle, limits)
        except GpuError as err:
            none = ("NVML_ERROR_NOT_FOUND", "NVML_ERROR_NOT_SUPPORTED")
            if getattr(err.__cause__, "value", None) in [self.constant(one) for one in none]:
                return None
            raise
        return None if limits.hardLimit == NO_LIMIT else int(limits.hardLimit) // MIB

    def _struct(self, name: str) -> Any:
        found = getattr(self._started(), name, None)
        if found is None:
            raise GpuError("nvidia-ml-py is older than 13.615: no limits of cgroups", "nvml")
        return found()

    def _handles_by_minor(self) -> dict[int, Any]:
        handles: dict[int, Any] = {}
        for index in range(self.call("nvmlDeviceGetCount")):
            try:
                handle = self.call("nvmlDeviceGetHandleByIndex", index)
                handles[int(self.call("nvmlDeviceGetMinorNumber", handle))] = handle
            except GpuError as err:
                # A lost neighbour must not hide the GPU that was asked for.
                self._lost.append(f"index {index}: {err.message}")
        return handles

    def _gpu(self, handle: Any) -> Gpu:
        memory = self.call("nvmlDeviceGetMemoryInfo", handle)
        return Gpu(
            uuid=as_text(self.call("nvmlDeviceGetUUID", handle)),
            minor=self.minor(handle),
            pci_bus_id=self._bus_id(handle),
            name=as_text(self.call("nvmlDeviceGetName", handle)),
            total_mib=int(memory.total) // MIB,
            free_mib=int(memory.free) // MIB,
            used_mib=int(memory.used) // MIB,
            processes=self.maybe(self._processes, handle),
        )

    def _bus_id(self, handle: Any) -> str:
        """Empty for a MIG device whose driver tells it of the whole GPU only."""
        found = self.maybe(lambda: as_text(self.call("nvmlDeviceGetPciInfo", handle).busId))
        return "" if isinstance(found, Missing) else found

    def _processes(self, handle: Any) -> tuple[Process, ...]:
        running = self.call("nvmlDeviceGetComputeRunningProcesses", handle)
        return tuple(
            Process(
                int(each.pid),
                Missing("the driver does not report it")
                if each.usedGpuMemory is None
                else int(each.usedGpuMemory) // MIB,
            )
            for each in running
        )

    def minor(self, handle: Any) -> int | Missing:
        """The N of a GPU's /dev/nvidiaN."""
        return self.maybe(lambda: int(self.call("nvmlDeviceGetMinorNumber", handle)))

    def mig_handles(self, handle: Any) -> list[Any] | None:
        """Handles of a GPU's MIG devices, as it is cut now; None where MIG is off or not known."""
        mode = self.maybe(self.call, "nvmlDeviceGetMigMode", handle)
        if isinstance(mode, Missing) or not mode[0]:
            return None
        every = (
            self.maybe(self.call, "nvmlDeviceGetMigDeviceHandleByIndex", handle, number)
            for number in range(MOST_ON_A_GPU)
        )
        # There are gaps in the numbers, where an instance was taken away.
        return [one for one in every if not isinstance(one, Missing)]

    def maybe(self, ask: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | Missing:
        """What ``ask`` answers, or why it does not."""
        try:
            return ask(*args, **kwargs)
        except GpuError as err:
            return Missing(err.message)

    def call(self, name: str, *args: Any) -> Any:
        """Call one function of NVML; raises GpuError with NVML's own words."""
        lib = self._started()
        try:
            return getattr(lib, name)(*args)
        except lib.NVMLError as err:
            raise GpuError(f"{name}: {err}", "nvml") from err

    def constant(self, name: str) -> int:
        """A number of nvml.h. Raises GpuError where NVML does not start."""
        return int(getattr(self._started(), name))

    def _started(self) -> Any:
        if self._lib is None:
            try:
                import pynvml
            except ImportError as err:
                raise GpuError("the Python package nvidia-ml-py is missing", "nvml") from err
            try:
                pynvml.nvmlInit()
            except pynvml.NVMLError as err:
                raise GpuError(f"NVML does not start: {err}", "nvml") from err
            self._lib = pynvml
        return self._lib


def _proc_bus_ids(root: Path) -> dict[int, str]:
    """Minor number to PCI bus id, from /proc/driver/nvidia/gpus/<bus id>/information."""
    found: dict[int, str] = {}
    try:
        folders = list(root.iterdir())
    except OSError:
        return found
    for folder in folders:
        try:
            text = (folder / "information").read_text("ascii", "replace")
        except OSError:
            continue
        for line in text.splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "Device Minor" and value.strip().isdigit():
                found[int(value)] = folder.name
    return found


def as_text(value: bytes | str) -> str:
    """NVML's strings are bytes in some releases of nvidia-ml-py."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
