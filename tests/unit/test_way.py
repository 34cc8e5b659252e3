# SPDX-License-Identifier: Apache-2.0
"""How many files a submission and an out-of-memory pass through, and the page that names them."""

import re

import pytest

from tests import way

PAGE = way.ROOT / "docs/developer/one-submission.md"
#: the most files of each
BOUNDS = {"submission": 25, "out-of-memory": 25}
HEADINGS = {
    "submission": "The submission in colocd",
    "out-of-memory": "The out-of-memory in colocd",
}


@pytest.fixture(scope="module")
def ways() -> dict[str, list[str]]:
    return way.ways()


@pytest.mark.parametrize("name", BOUNDS)
def test_few_files(ways: dict[str, list[str]], name: str) -> None:
    assert len(ways[name]) <= BOUNDS[name], ways[name]


@pytest.mark.parametrize("name", BOUNDS)
def test_the_page_names_these_files(ways: dict[str, list[str]], name: str) -> None:
    section = PAGE.read_text("utf-8").split(f"## The {name} in colocd\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    assert set(re.findall(r"`([^`]+)`", " ".join(rows))) == set(ways[name])
