# SPDX-License-Identifier: Apache-2.0
"""What stands in a node's Extra, and when it is written."""

import json

import pytest

from slurm_coloc.core.nodegate import due, level, present, written


def test_the_least_busy_gpu_counts_and_what_is_not_known_is_open() -> None:
    assert level([0.9, 0.31]) == 31
    assert level([0.9, None]) == 0
    assert level([]) == 0


@pytest.mark.parametrize("extra", ['{"rack":"b7","smact":10}', '{"rack":"b7"}'])
def test_other_keys_stay(extra: str) -> None:
    text = written(extra, 85)
    assert text is not None
    assert json.loads(text) == {"rack": "b7", "smact": 85}
    assert present(text) == 85


def test_alone() -> None:
    assert written("", 5) == '{"smact":5}'


@pytest.mark.parametrize("extra", ["rack b7", "[1]", '"smact"'])
def test_what_is_no_object_is_not_touched(extra: str) -> None:
    assert written(extra, 85) is None
    assert present(extra) is None


@pytest.mark.parametrize(
    ("now", "then", "gate", "worth"),
    [(None, 0, 80, True), (50, 53, 80, False), (50, 55, 80, True), (79, 81, 80, True),
     (81, 79, 80, True), (81, 83, 80, False)],
)  # fmt: skip
def test_a_change_of_a_few_points_is_not_written(
    now: int | None, then: int, gate: int, worth: bool
) -> None:
    assert due(now, then, gate) is worth
