# SPDX-License-Identifier: Apache-2.0
"""From slurmd's numbers to GPUs and MIG devices, by what ``slurmd -G`` prints."""

import pytest

from slurm_coloc.adapters.nvml.mig import MigDevice, MigGpu, mig_uuid
from slurm_coloc.adapters.slurmd import GresGpu, parse_gpus
from slurm_coloc.errors import GpuError

CAP = "/dev/nvidia-caps/nvidia-cap"
# slurmd 22.05.8; the shards of a type stand before its GPUs
FILES = f"""\
slurmd: Gres Name=shard Type=a100 Count=39 Index=0 ID=1918986455 File=/dev/nvidia0 (null)
slurmd: Gres Name=gpu Type=a100 Count=1 Index=0 ID=7696487 File=/dev/nvidia0 (null)
slurmd: Gres Name=shard Type=1g.5gb Count=0 Index=220 ID=1918986455 File={CAP}220 (null)
slurmd: Gres Name=gpu Type=1g.5gb Count=1 Index=220 ID=7696487 File={CAP}220 (null)
"""
# slurmd 24.11.5
MULTIPLE = (
    "slurmd: Gres Name=gpu Type=1g.5gb Count=1 Index=220 ID=7696487"
    f" File=/dev/nvidia1,{CAP}219,{CAP}220 Links=(null) Flags=HAS_FILE,HAS_TYPE,ENV_NVML\n"
    "slurmd: Gres Name=gpu Type=a100 Count=1 Index=0 ID=7696487 File=/dev/nvidia0 Links=(null)\n"
)


def device(ci_cap: int, uuid: str) -> MigDevice:
    return MigDevice(
        uuid, "GPU-1", 1, "", 1, 9, 0, "1g.5gb", 14, 0.13, 4864, 4864, ci_cap - 1, ci_cap
    )


CUT = [MigGpu("GPU-1", 1, 1, "A100", (device(220, "MIG-a"), device(229, "MIG-b")))]


def test_slurmds_list_in_its_order() -> None:
    assert parse_gpus(FILES) == [
        GresGpu("a100", ("/dev/nvidia0",)),
        GresGpu("1g.5gb", (f"{CAP}220",)),
    ]
    assert parse_gpus(MULTIPLE) == [
        GresGpu("1g.5gb", ("/dev/nvidia1", f"{CAP}219", f"{CAP}220")),
        GresGpu("a100", ("/dev/nvidia0",)),
    ]
    ranged = "Gres Name=gpu Type=(null) Count=3 Index=0 ID=1 File=/dev/nvidia[0-1,4] (null)\n"
    assert [one.files for one in parse_gpus(ranged)] == [
        ("/dev/nvidia0",),
        ("/dev/nvidia1",),
        ("/dev/nvidia4",),
    ]


def behind(gres: GresGpu) -> str:
    return mig_uuid(gres.type, gres.files, CUT)


def test_the_device_behind_the_file() -> None:
    assert behind(parse_gpus(FILES)[1]) == "MIG-a"
    assert behind(parse_gpus(MULTIPLE)[0]) == "MIG-a"


def test_what_no_device_stands_behind_is_told() -> None:
    with pytest.raises(GpuError, match="cut anew"):
        mig_uuid("1g.5gb", (f"{CAP}238",), CUT)
    with pytest.raises(GpuError, match="not MultipleFiles"):
        mig_uuid("1g.5gb", ("/dev/nvidia1",), CUT)
