# SPDX-License-Identifier: Apache-2.0
"""The table of what depends on a Slurm release, and its page."""

import re
from pathlib import Path

from slurm_coloc.core.slurm import releases
from slurm_coloc.core.slurm.releases import Since, parse_release

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/developer/a-new-slurm-release.md"


def test_the_page_has_every_row_of_the_table() -> None:
    text = PAGE.read_text("utf-8")
    found = re.findall(r"^\| ([A-Z_]+) \| ([0-9.]+) \|", text, re.MULTILINE)
    rows = {name: row.first for name, row in vars(releases).items() if isinstance(row, Since)}
    assert {name: parse_release(first) for name, first in found} == rows


def test_a_row_holds_from_its_release_on() -> None:
    assert not releases.WHOLE_APART.holds(parse_release("23.11.4"))
    assert releases.WHOLE_APART.holds(parse_release("slurm 23.11.5"))
    assert releases.WHOLE_APART.holds(parse_release("24.05.0"))
    assert not releases.SLASHED_GRES.holds(parse_release("22.05.8"))
    assert not releases.SUPPORTED.holds(parse_release(""))


def test_the_layout_of_json() -> None:
    """The newest that a release has; of a release newer than the table, the table's newest."""
    asked = ("23.11.9", "24.11.5", "25.05.0", "25.11.2", "26.05.1", "27.05.0")
    assert [releases.json_layout(parse_release(one)) for one in asked] == [
        None, "v0.0.42", "v0.0.43", "v0.0.44", "v0.0.45", "v0.0.45",
    ]  # fmt: skip


def test_no_other_file_compares_releases() -> None:
    """A comparison with a tuple of release numbers stands in the table alone."""
    shape = re.compile(r"(?:[<>]=?|==) \(2[0-9],")
    found = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "slurm_coloc").rglob("*.py")
        if shape.search(path.read_text("utf-8"))
    ]
    assert found == []
