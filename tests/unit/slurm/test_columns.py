# SPDX-License-Identifier: Apache-2.0
"""The columns of squeue's text."""

import pytest

from slurm_coloc.adapters.slurm.commands.columns import SEPARATOR, Columns, Marks
from slurm_coloc.errors import SlurmError

COLUMNS = Columns("JobID:0,State:0,Feature:8,ExcNodes:8")


MARKS = Marks("\x1eab", "\x1dcd")


def test_values_without_a_width_come_first_and_are_never_cut() -> None:
    assert COLUMNS.marked(MARKS) == "JobID:0\x1eab,State:0\x1eab,Feature:8,ExcNodes:8\x1dcd"
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


def test_what_a_user_writes_ends_no_line_and_no_value() -> None:
    """An account may have any character: whole lines of other people's jobs, in an older form."""
    forged = f"x{SEPARATOR}y\n8{SEPARATOR}RUNNING{SEPARATOR}{'a100':<8}n1\n"
    raw = f"7\x1eab{forged}\x1eab{'a100':<8}{'n1':<8}\x1dcd\n9\x1eabRUNNING\x1eab{'':<16}\x1dcd\n"
    lines = COLUMNS.rows(MARKS.lines(raw))
    assert [one["JobID"] for one in lines] == ["7", "9"]
    assert lines[0]["ExcNodes"] == "n1" and "RUNNING" in lines[0]["State"]
    assert Marks.drawn() != Marks.drawn()


def test_words_are_utf8_and_padded_in_bytes() -> None:
    feature = "für".encode().decode("latin-1")
    line = SEPARATOR.join(["7", "PENDING", f"{feature:<8}n1"])
    assert COLUMNS.parse(line)["Feature"] == "für"
    assert COLUMNS.parse(line)["ExcNodes"] == "n1"


@pytest.mark.parametrize("line", ["7", f"7{SEPARATOR}", f"7{SEPARATOR}PENDING{SEPARATOR}short"])
def test_another_layout_is_refused(line: str) -> None:
    with pytest.raises(SlurmError, match="too short for its columns"):
        COLUMNS.parse(line)
