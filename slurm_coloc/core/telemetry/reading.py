# SPDX-License-Identifier: Apache-2.0
"""One sample of a GPU or MIG device, its processes attributed."""

from typing import NamedTuple


class Held(NamedTuple):
    """One process on a GPU. ``start_s``: when it began (epoch); ``job_id`` None: of no job.

    ``busy``: NVML's share of time with a kernel of this process (0..1), a weight and no activity.
    """

    pid: int
    start_s: float
    mib: int
    job_id: int | None
    busy: float | None = None


class Profile(NamedTuple):
    """Profiling counters: ratios 0..1, PCIe in MiB/s. None: not told."""

    smact: float | None = None
    smocc: float | None = None
    dram: float | None = None
    pcie_tx_mib_s: float | None = None
    pcie_rx_mib_s: float | None = None


class Reading(NamedTuple):
    """A GPU (or MIG device, ``mig``) at one moment. ``energy_j``: its counter since the driver was
    loaded."""

    uuid: str
    name: str
    total_mib: int
    free_mib: int
    held: tuple[Held, ...]
    profile: Profile
    power_w: float | None = None
    energy_j: float | None = None
    mig: bool = False

    def mib_of(self, job_id: int) -> int:
        """What the processes of a job hold here."""
        return sum(one.mib for one in self.held if one.job_id == job_id)

    @property
    def jobs(self) -> dict[int, int]:
        """MiB of each job that holds memory here."""
        found: dict[int, int] = {}
        for one in self.held:
            if one.job_id is not None:
                found[one.job_id] = found.get(one.job_id, 0) + one.mib
        return found

    @property
    def foreign_mib(self) -> int:
        """What processes of no job hold."""
        return sum(one.mib for one in self.held if one.job_id is None)
