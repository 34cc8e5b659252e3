# SPDX-License-Identifier: Apache-2.0
"""DCGM's job statistics: `dcgmi stats`, over a group of the GPUs that a job has.

They are of GPUs, not of processes: right for a job that has its GPUs to itself, and for no other.
What dcgmi calls SM utilization is NVML's utilization (field 203), not SM activity. DCGM adds up the
samples that it keeps: one each WATCH_MS, for KEPT_S; of a longer job they are of its last day. Its
slowdowns are those of the whole group.

The texts are those of dcgmi 2 to 4 (NVIDIA/DCGM, dcgmi/ProcessStats.cpp and Group.cpp).
"""

import re
from collections.abc import Mapping
from typing import Any

from slurm_coloc.adapters.dcgm import Dcgmi, first
from slurm_coloc.errors import GpuError

#: of the names of our groups and jobs in the host engine
PREFIX = "coloc-"
WATCH_MS, KEPT_S = 10_000, 86_400
MOST = 1e12  # DCGM's blanks are far above; a kW for thirty years is below
MOST_COUNT = 2**24  # larger counts are reported as this

_GPU = re.compile(r"^\|\s*GPU ID:\s*(\d+)\s*\|")
_ITEM = re.compile(r"^\|\s*(\S.*?)\s*\|\s*(\S.*?)\s*\|\s*$")
_MEAN = re.compile(r"Avg:\s*([0-9.]+)")
_CREATED = re.compile(r"with a group ID of (\d+)")
_ID = re.compile(r"Group ID\s*\|\s*(\d+)")
_NAME = re.compile(r"Group Name\s*\|\s*(\S+)")
#: what dcgmi calls a figure: its name here, factor
FIGURES: Mapping[str, tuple[str, float]] = {
    "Total Execution Time (sec)": ("lasted_s", 1.0),
    "Energy Consumed (Joules)": ("energy_j", 1.0),
    "Power Usage (Watts)": ("power_w", 1.0),
    "Max GPU Memory Used (bytes)": ("max_mib", 1 / 2**20),
    "SM Utilization (%)": ("utilization", 0.01),
    "Memory Utilization (%)": ("memory_utilization", 0.01),
    "PCIe Rx Bandwidth (megabytes)": ("pcie_rx_mb_s", 1.0),
    "PCIe Tx Bandwidth (megabytes)": ("pcie_tx_mb_s", 1.0),
    "Single Bit ECC Errors": ("ecc_single", 1.0),
    "Double Bit ECC Errors": ("ecc_double", 1.0),
    "PCIe Replay Warnings": ("pcie_replays", 1.0),
    "Critical XID Errors": ("xids", 1.0),
    "Due to - Power (%)": ("slow_power", 0.01),
    "- Thermal (%)": ("slow_thermal", 0.01),
    "- Reliability (%)": ("slow_reliability", 0.01),
    "- Board Limit (%)": ("slow_board", 0.01),
    "- Sync Boost (%)": ("slow_sync", 0.01),
}
COUNTS = ("max_mib", "ecc_single", "ecc_double", "pcie_replays", "xids")

Plain = dict[str, Any]


def read_stats(text: str) -> dict[int, Plain]:
    """Figures of each GPU by DCGM's number, from `dcgmi stats -v -j`. What DCGM has no value for
    (N/A, Not Supported, Not Specified) is left out."""
    found: dict[int, Plain] = {}
    gpu: Plain | None = None
    for line in text.splitlines():
        if hit := _GPU.match(line):
            gpu = found.setdefault(int(hit[1]), {})
        hit = _ITEM.match(line)
        if gpu is None or hit is None or hit[1] not in FIGURES:
            continue
        mean = _MEAN.match(hit[2])
        name, factor = FIGURES[hit[1]]
        try:
            value = float(mean[1] if mean else hit[2])
        except ValueError:
            continue
        if 0.0 <= value <= MOST:
            value *= factor
            if name in COUNTS:
                gpu[name] = min(int(value), MOST_COUNT)
            else:
                gpu[name] = round(min(value, 1.0) if factor == 0.01 else value, 4)
    return found


def read_groups(text: str) -> dict[str, int]:
    """Our groups' numbers by name, from `dcgmi group -l`."""
    found: dict[str, int] = {}
    number: int | None = None
    for line in text.splitlines():
        if hit := _ID.search(line):
            number = int(hit[1])
        elif (hit := _NAME.search(line)) and number is not None and hit[1].startswith(PREFIX):
            found[hit[1]] = number
    return found


def name_of(job_id: int, restart: int) -> str:
    """What a run is called in the host engine."""
    return f"{PREFIX}{job_id}.{restart}"


class JobStatistics:
    """The host engine's side of a job. Raises GpuError for what it refuses."""

    def __init__(self, dcgmi: Dcgmi) -> None:
        self._dcgmi = dcgmi

    async def groups(self) -> dict[str, int]:
        """Ours that are there, by name; also those of an agent that was killed."""
        return read_groups(await self._run("group", "-l"))

    async def begin(self, name: str, gpus: list[int]) -> int:
        """Make a group of these GPUs (DCGM's numbers), have them watched, and begin; the group."""
        text = await self._run("group", "-c", name, "-a", ",".join(map(str, gpus)))
        hit = _CREATED.search(text)
        if hit is None:
            raise GpuError(f"dcgmi group: {first(text)}", "dcgm")
        group = hit[1]
        try:
            await self._run(
                *("stats", "-g", group, "-e", "-u", str(WATCH_MS), "-m", str(KEPT_S)),
            )
            await self._run("stats", "-g", group, "-s", name)
        except GpuError:
            await self._dcgmi.run("group", "-d", group)
            raise
        return int(group)

    async def read(self, name: str) -> dict[int, Plain]:
        """Figures up to now, of a job that runs or has ended."""
        found = read_stats(await self._run("stats", "-v", "-j", name))
        if not found:
            raise GpuError(f"dcgmi stats: nothing of {name}", "dcgm")
        return found

    async def remove(self, name: str, group: int) -> None:
        """Forget a job and its group; what is not there any more is no fault."""
        await self._dcgmi.run("stats", "-x", name)
        await self._dcgmi.run("stats", "-r", name)
        await self._dcgmi.run("group", "-d", str(group))

    async def _run(self, *words: str) -> str:
        done, text = await self._dcgmi.run(*words)
        if not done or text.lstrip().startswith("Error"):
            raise GpuError(f"dcgmi {words[0]}: {first(text)}", "dcgm")
        return text
