# SPDX-License-Identifier: Apache-2.0
"""One sample of a GPU or MIG device, with its processes and the activity of each job.

NVIDIA has no counter for the SM activity of one process. Alone on a GPU a job's activity is the
GPU's; beside others it is divided in proportion to the time in which each had a kernel running
(NVML's per-process utilization), else by equal parts, and is called split.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from slurm_coloc.core.gpu.telemetry.idle import NOTHING

How = Literal["alone", "split", "mig"]


class Held(NamedTuple):
    """One process on a GPU. ``start_s``: its start (epoch), ``started`` the same in clock ticks
    since boot; ``job_id`` None: of no job. ``busy``: NVML's share of time with a kernel of this
    process (0..1), a weight and not an activity."""

    pid: int
    start_s: float
    mib: int
    job_id: int | None
    busy: float | None = None
    started: int = 0


class Profile(NamedTuple):
    """Profiling counters: ratios 0..1, PCIe in MiB/s. None: not known."""

    smact: float | None = None
    smocc: float | None = None
    dram: float | None = None
    pcie_tx_mib_s: float | None = None
    pcie_rx_mib_s: float | None = None


class Reading:
    """A GPU (or MIG device, ``mig``) at one moment. ``energy_j``: its counter since the driver was
    loaded; ``index``: NVML's number of the GPU; ``minor``: of /dev/nvidiaN; ``gpu_uuid``: of the
    whole GPU; ``instance`` and ``compute``: a MIG device's GPU instance and compute instance;
    ``source``: of the ``profile``; ``why``: reasons of each None.

    ``jobs``: MiB of each job that holds memory here; ``owners``: those jobs, and None for a process
    of no job; ``foreign_mib``: memory of such processes; ``weights``: each job's part of the
    activity; with the processes of no job they add up to 1.
    """

    def __init__(
        self,
        uuid: str,
        name: str,
        total_mib: int,
        free_mib: int,
        held: tuple[Held, ...],
        profile: Profile,
        power_w: float | None = None,
        energy_j: float | None = None,
        mig: bool = False,
        index: int = 0,
        minor: int | None = None,
        gpu_uuid: str = "",
        instance: int | None = None,
        compute: int = 0,
        source: Literal["dcgm", "gpm"] = "gpm",
        why: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.uuid = uuid
        self.name = name
        self.total_mib = total_mib
        self.free_mib = free_mib
        self.held = held
        self.profile = profile
        self.power_w = power_w
        self.energy_j = energy_j
        self.mig = mig
        self.index = index
        self.minor = minor
        self.gpu_uuid = gpu_uuid or uuid
        self.instance = instance
        self.compute = compute
        self.source = source
        self.why = why
        self.owners = frozenset(one.job_id for one in held)
        self.jobs: dict[int, int] = {}
        self.foreign_mib = 0
        for one in held:
            if one.job_id is None:
                self.foreign_mib += one.mib
            else:
                self.jobs[one.job_id] = self.jobs.get(one.job_id, 0) + one.mib
        self.weights = _weights(held)

    def mib_of(self, job_id: int) -> int:
        """MiB of the processes of a job here."""
        return self.jobs.get(job_id, 0)

    def part(self, value: float | None, job_id: int) -> float | None:
        """A job's part of a figure of the whole GPU."""
        return None if value is None else value * self.weights.get(job_id, 0.0)

    def busy(self, job_id: int) -> float | None:
        """The share of time (0..1) in which a kernel of this job ran; None where it is not known
        of each of its processes."""
        times = [one.busy for one in self.held if one.job_id == job_id]
        known = [one for one in times if one is not None]
        return min(1.0, sum(known)) if known and len(known) == len(times) else None

    def how(self, job_id: int) -> How:
        """How a job's activity is known: measured alone, or split."""
        if self.owners - {job_id}:
            return "split"
        return "mig" if self.mig else "alone"

    def is_certain(self, job_id: int) -> bool:
        """Whether a job's activity is not a part of what several did: it has the GPU to itself, or
        no process there, or nothing ran on the GPU."""
        if self.how(job_id) != "split" or self.owners.isdisjoint({None, job_id}):
            return True
        return (self.profile.smact or 0.0) < NOTHING


def _weights(held: tuple[Held, ...]) -> dict[int, float]:
    busy: dict[int | None, float] = {}
    for one in held:
        busy[one.job_id] = busy.get(one.job_id, 0.0) + (one.busy or 0.0)
    total = sum(busy.values())
    if total <= 0:  # not reported, or no kernel ran
        busy, total = dict.fromkeys(busy, 1.0), float(len(busy))
    return {job: part / total for job, part in busy.items() if job is not None}
