# SPDX-License-Identifier: Apache-2.0
"""The MIG devices of a node as adapters/nvml/mig finds them through NVML."""

from pathlib import Path

from slurm_coloc.adapters.nvml.mig import cap_minor, read_caps


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
