# SPDX-License-Identifier: Apache-2.0
"""The pictures of estimator.evaluate."""

from pathlib import Path

import pytest

from estimator.evaluate import picture
from estimator.evaluate.judging import Answer, Case
from estimator.evaluate.picture import Point

pytest.importorskip("matplotlib")


def points(many: int) -> list[Point]:
    return [
        Point(("cnn", "transformer")[i % 2], 2000.0 + 300 * i, 2100.0 + 290 * i, 2500.0 + 340 * i)
        for i in range(many)
    ]


@pytest.mark.parametrize("many", [1, 9, 40])
def test_a_panel_for_each_way(tmp_path: Path, many: int) -> None:
    path = tmp_path / "one.png"
    picture.against([("text", points(many)), ("recorded", points(1))], path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_many_runs_are_a_small_file(tmp_path: Path) -> None:
    path = tmp_path / "many.png"
    picture.against([("text", points(1700)), ("recorded", points(1700))], path)
    assert 10_000 < path.stat().st_size < 150_000


def test_the_bound_is_the_median_of_its_neighbours() -> None:
    ones = [Point("cnn", 1000, 1000 + i, 1.2 * (1000 + i)) for i in range(50)]
    ones[7] = ones[7]._replace(upper_mib=9e9)  # one model of its own
    line = picture._bound(ones)
    assert len(line) == 10
    assert all(upper == pytest.approx(1.2 * mib) for mib, upper in line)


def test_methods_that_said_nothing_are_not_drawn(tmp_path: Path) -> None:
    path = tmp_path / "methods.png"
    picture.methods(
        [
            Case(
                "a", 8000, {"text": Answer(8100, 9000), "Horus, as published": Answer(4000, 4000)}
            ),
            Case("b", 20000, {"text": Answer(19000, 22000)}),
        ],
        path,
    )
    assert path.read_bytes().startswith(b"\x89PNG")
