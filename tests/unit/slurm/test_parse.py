# SPDX-License-Identifier: Apache-2.0
"""The columns of squeue's text."""

import pytest

from slurm_coloc.adapters.slurm.commands.parse import SEPARATOR, Columns
from slurm_coloc.errors import SlurmError

COLUMNS = Columns("JobID:0,State:0,Feature:8,ExcNodes:8")


def test_values_without_a_width_come_first_and_are_never_cut() -> None:
    assert COLUMNS.form == f"JobID:0{SEPARATOR},State:0{SEPARATOR},Feature:8,ExcNodes:8"
    line = SEPARATOR.join(["7", "N/A", "a100    n1      "])
    assert COLUMNS.parse(line) == {"JobID": "7", "State": "", "Feature": "a100", "ExcNodes": "n1"}
    long = SEPARATOR.join(["7", "x" * 5000, "(null)  "])
    assert COLUMNS.parse(long)["State"] == "x" * 5000
    assert COLUMNS.parse(long)["Feature"] == COLUMNS.parse(long)["ExcNodes"] == ""


def test_a_users_separator_stays_in_its_own_column() -> None:
    feature = f"a{SEPARATOR}b{SEPARATOR}c"
    line = SEPARATOR.join(["7", "PENDING", f"{feature:<8}n1"])
    found = COLUMNS.parse(line)
    assert (found["Feature"], found["ExcNodes"]) == (feature, "n1")


def test_words_are_utf8_and_padded_in_bytes() -> None:
    feature = "für".encode().decode("latin-1")
    line = SEPARATOR.join(["7", "PENDING", f"{feature:<8}n1"])
    assert COLUMNS.parse(line)["Feature"] == "für"
    assert COLUMNS.parse(line)["ExcNodes"] == "n1"


@pytest.mark.parametrize("line", ["7", f"7{SEPARATOR}", f"7{SEPARATOR}PENDING{SEPARATOR}short"])
def test_another_layout_is_refused(line: str) -> None:
    with pytest.raises(SlurmError, match="too short for its columns"):
        COLUMNS.parse(line)
