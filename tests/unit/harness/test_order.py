# SPDX-License-Identifier: Apache-2.0
"""The longest tests first, a file by one worker, and how long a run is said to take."""

from pathlib import Path

import pytest

from tests.harness.order import TESTS, USUAL_CLUSTER_S, USUAL_S, Measured, load, told, written

MEASURED = Measured(together={"t/long.py": 60.0}, apart={"t/apart.py": 200.0})
IDS = ["t/a.py::x", "t/apart.py::one", "t/apart.py::two[a::b]", "t/long.py::x", "t/long.py::y"]


def test_a_file_stays_together_and_tests_apart_do_not() -> None:
    assert [MEASURED.scope(one) for one in IDS] == [
        "t/a.py", "t/apart.py::one", "t/apart.py::two[a::b]", "t/long.py", "t/long.py"
    ]  # fmt: skip


def test_the_longest_come_first() -> None:
    seconds = MEASURED.seconds(IDS)
    assert seconds == {
        "t/a.py": USUAL_S,
        "t/apart.py::one": 100.0,
        "t/apart.py::two[a::b]": 100.0,
        "t/long.py": 60.0,
    }
    assert [IDS[at] for at in MEASURED.ordered(IDS)] == [*IDS[1:], IDS[0]]


def test_what_waits_is_begun_among_what_computes() -> None:
    computing = [f"t/{name}.py::x" for name in "abcd"]
    waiting = [f"tests/cluster/test_{name}.py::x" for name in "xy"]
    measured = Measured({**dict.fromkeys(["t/a.py", "t/b.py", "t/c.py"], 10.0)}, {})
    assert measured.seconds(waiting) == dict.fromkeys(
        [one.partition("::")[0] for one in waiting], USUAL_CLUSTER_S
    )  # not measured yet: it is not begun last
    ids = [*computing, *waiting]
    order = [ids[at] for at in measured.ordered(ids)]
    assert order == [computing[0], waiting[0], computing[1], waiting[1], *computing[2:]]


def test_each_file_that_was_measured_is_there() -> None:
    measured = load()
    root = TESTS.parent
    files = [*measured.together, *measured.apart]
    assert files and [file for file in files if not (root / file).is_file()] == []
    assert not set(measured.together) & set(measured.apart)


def test_another_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "d.toml"
    path.write_text("[together]\n")
    with pytest.raises(ValueError, match="tables together and apart"):
        load(path)


def test_what_was_measured_is_written() -> None:
    text = written(MEASURED, {"t/apart.py": 2.0, "t/new.py": 40.4, "t/quick.py": 1.0})
    assert text.splitlines()[2:] == [
        "", "[together]", '"t/long.py" = 60', '"t/new.py" = 40', "", "[apart]", '"t/apart.py" = 2'
    ]  # fmt: skip
    assert (text.count("60"), written(MEASURED, {"t/long.py": 3.0}).count("60")) == (1, 0)


def test_how_long_it_will_take() -> None:
    assert told(5100, 830.0).startswith("test: 5,100 tests, about 14 minutes")
