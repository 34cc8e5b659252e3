# SPDX-License-Identifier: Apache-2.0
"""Every test that docs/threats.md names is there."""

import itertools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "threats.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py(?:::\w+)?)`", TEXT)))


@pytest.mark.parametrize("name", NAMED)
def test_it_is_there(name: str) -> None:
    file, _, test = name.partition("::")
    source = (ROOT / file).read_text()
    assert f"def {test}(" in source if test else "def test_" in source


def test_every_row_names_a_test() -> None:
    lines = TEXT.splitlines()
    heads = {above for above, line in itertools.pairwise(lines) if line.startswith("|---")}
    rows = [line for line in lines if line.startswith("| ") and line not in heads]
    assert len(rows) > 20
    assert all("`tests/" in row or "`make " in row for row in rows)
