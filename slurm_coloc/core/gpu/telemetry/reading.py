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


class Reading:
    """A GPU (or MIG device, ``mig``) at one moment. ``energy_j``: its counter since the driver was
    loaded. Each job on it asks for all of them: they are added up once.

    ``jobs``: MiB of each job that holds memory here; ``owners``: those jobs, and None where there
    is a process of no job; ``foreign_mib``: what such processes hold.
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
        self.owners = frozenset(one.job_id for one in held)
        self.jobs: dict[int, int] = {}
        self.foreign_mib = 0
        for one in held:
            if one.job_id is None:
                self.foreign_mib += one.mib
            else:
                self.jobs[one.job_id] = self.jobs.get(one.job_id, 0) + one.mib

    def mib_of(self, job_id: int) -> int:
        """What the processes of a job hold here."""
        return self.jobs.get(job_id, 0)
