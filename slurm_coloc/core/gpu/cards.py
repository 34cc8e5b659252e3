# SPDX-License-Identifier: Apache-2.0
"""GPU types by name, and how a GPU's memory is cut into shards."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class GpuType(NamedTuple):
    """A GPU model. ``total_mib`` is what NVML's memory info calls total, in MiB."""

    name: str
    total_mib: int


# Totals as nvidia-smi prints them (NVIDIA's data sheets; public outputs of drivers 5xx). Boards
# with ECC switched on, and other drivers, show up to 7 % less.
_TOTAL_MIB = {
    "gtx1080ti-11gb": 11264,
    "rtx2070-8gb": 8192,
    "rtx2080-8gb": 8192,
    "rtx2080ti-11gb": 11264,
    "rtx3060-12gb": 12288,
    "rtx3070-8gb": 8192,
    "rtx3080-10gb": 10240,
    "rtx4060-8gb": 8188,
    "rtx4060ti-16gb": 16380,
    "rtx4070-12gb": 12282,
    "rtx4080-16gb": 16376,
    "rtx5080-16gb": 16303,
    "rtx5090-32gb": 32607,
    "rtx6000ada-48gb": 49140,
    "a4000-16gb": 16376,
    "a5000-24gb": 24564,
    "a6000-48gb": 49140,
    "p100-16gb": 16384,
    "t4-16gb": 15360,
    "v100-16gb": 16384,
    "v100-32gb": 32768,
    "rtx3090-24gb": 24576,
    "rtx4090-24gb": 24564,
    "a10-24gb": 23028,
    "a30-24gb": 24576,
    "l4-24gb": 23034,
    "l40s-48gb": 46068,
    "a40-48gb": 46068,
    "a100-40gb": 40960,
    "a100-80gb": 81920,
    "h100-80gb": 81559,
    "h100-94gb": 95830,
    "h200-141gb": 143771,
    "b200-180gb": 183359,
}
GPU_TYPES: Mapping[str, GpuType] = MappingProxyType(
    {name: GpuType(name, mib) for name, mib in _TOTAL_MIB.items()}
)


def shards_of(total_mib: int, shard_mib: int, margin_mib: int) -> int:
    """The shards of a GPU of ``total_mib``: its usable memory in whole shards, never below 0.

    A 40 GiB card with 1 GiB shards and a margin of 512 MiB gives 39.
    """
    return max(0, (total_mib - margin_mib) // shard_mib)
