# SPDX-License-Identifier: Apache-2.0
"""What is left out of a run is counted, and a file that is named runs in any case."""

from collections import Counter
from pathlib import Path

import pytest

from tests.harness import selection

HERE = Path(__file__)
FILE = str(HERE)


class Config:
    """Of pytest's configuration what the selection reads."""

    def __init__(self, *args: str) -> None:
        self.args = list(args)
        self.stash = pytest.Stash()
        self.gone: list[str] = []

    @property
    def hook(self) -> "Config":
        return self

    def pytest_deselected(self, items: list["Item"]) -> None:
        self.gone += [item.nodeid for item in items]


class Item:
    """A test by its name in this file."""

    def __init__(self, name: str) -> None:
        self.path, self.nodeid = HERE, f"tests/unit/harness/test_selection.py::{name}"


def left(config: Config, *names: str) -> list[str]:
    """The names that remain where all are to be left out."""
    items = [Item(name) for name in names]
    selection.leave_out(config, items, lambda item: True, "are made up")  # type: ignore[arg-type]
    return [item.nodeid.partition("::")[2] for item in items]


def test_what_is_left_out_is_counted() -> None:
    config = Config("tests/unit")
    assert left(config, "a", "b[1]") == []
    assert len(config.gone) == 2
    assert list(selection.said(config.stash[selection.LEFT_OUT])) == [
        "not run: 2 tests that are made up"
    ]


@pytest.mark.parametrize(
    ("arg", "remain"),
    [
        (FILE, ["a", "ab", "a[1]"]),
        (f"{FILE}::a", ["a", "a[1]"]),
        (f"{FILE}::a[1]", ["a[1]"]),
        (f"{HERE.parent}/test_order.py", []),
    ],
)
def test_what_is_named_runs(arg: str, remain: list[str]) -> None:
    config = Config(arg)
    assert left(config, "a", "ab", "a[1]") == remain


def test_nothing_to_leave_out_says_nothing() -> None:
    assert list(selection.said(Counter())) == []
