# SPDX-License-Identifier: Apache-2.0
"""The MIG devices of a node as adapters/nvml/mig finds them through NVML."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.adapters.dcgm.counters import FIELDS, read_instances, read_line
from slurm_coloc.adapters.nvml.mig import cap_minor, read_caps

from .conftest import Node


def test_cap_minors_follow_the_drivers_scheme() -> None:
    # the lines of NVIDIA's MIG user guide
    assert cap_minor(0, 0) == 3
    assert cap_minor(0, 0, 2) == 6
    assert cap_minor(31, 14, 6) == 4321
    assert cap_minor(31, 14, 7) == 4322


def test_the_drivers_own_list_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mig-minors"
    path.write_text("config 1\nmonitor 2\ngpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\njunk\n")
    assert read_caps(path) == {(0, 1, None): 12, (0, 1, 0): 13}
    assert read_caps(tmp_path / "none") == {}


def test_the_devices_of_a_node(make_node: Callable[..., Node], nvml: Callable[..., Any]) -> None:
    node = make_node("mig-mixed")
    seen = nvml(
        node,
        """
from dataclasses import asdict
from slurm_coloc.adapters.nvml import Nvml
from slurm_coloc.adapters.nvml.mig import Mig
with Nvml() as lib:
    devices = [one for gpu in Mig(lib).gpus() for one in gpu.devices]
    print(json.dumps([one._asdict() | {"files": one.files} for one in devices]))
""",
    )
    assert [one["profile"] for one in seen] == [
        "1c.3g.20gb",
        "2c.3g.20gb",
        "2g.10gb",
        "1g.5gb",
        "1g.5gb",
    ]
    small = seen[3]
    assert (small["parent_minor"], small["gi"], small["ci"], small["total_mib"]) == (1, 9, 0, 4864)
    assert small["fraction"] == pytest.approx(14 / 108)
    assert small["files"] == [
        "/dev/nvidia1",
        "/dev/nvidia-caps/nvidia-cap219",
        "/dev/nvidia-caps/nvidia-cap220",
    ]
    # two compute instances have the file of their GPU instance in common
    assert seen[0]["gi_cap"] == seen[1]["gi_cap"]
    assert seen[0]["ci_cap"] != seen[1]["ci_cap"]


def test_dcgm_tells_activity_by_instance_where_the_gpu_is_blind(
    make_node: Callable[..., Node],
) -> None:
    node = make_node("mig-mixed")
    text = node.tool("dcgmi", "discovery", "-c").stdout
    # entity 0 is the 3g instance with two compute instances: not told apart
    cut = read_instances(text)
    assert cut == {1: (1, 3), 2: (1, 9), 3: (1, 10)}
    listed = node.tool("nvidia-smi", "-L").stdout
    uuid = re.findall(r"MIG 2g.10gb .*(MIG-[0-9a-f-]+)", listed)[0]
    train = ("--memory-mib", 1000, "--smact", 0.2, "--work-s", 60)
    node.train(*train, CUDA_VISIBLE_DEVICES=uuid)
    fields = ",".join(str(field) for field, _ in FIELDS.values())

    def busy() -> bool:
        lines = node.tool("dcgmi", "dmon", "-e", fields, "-c", 1, "-i", "1,i:1,i:2").stdout
        found = dict(filter(None, (read_line(one, "GPU-I") for one in lines.splitlines())))
        whole = dict(filter(None, (read_line(one) for one in lines.splitlines())))
        assert whole == {1: None}
        assert found[2] is not None and found[2].smact == 0.0
        assert found[1] is not None and found[1].smact is not None
        # 0.2 of the GPU's SMs, of which the instance has 28 of 108
        return found[1].smact == pytest.approx(0.2 * 108 / 28, abs=0.01)

    node.until(busy)
