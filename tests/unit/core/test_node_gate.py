# SPDX-License-Identifier: Apache-2.0
"""What stands in a node's Extra, and when it is written."""

import json

import pytest

from slurm_coloc.core.place.node_gate import (
    OPENED,
    constraint_below,
    due,
    joined,
    level,
    limit_pct,
    numbers,
    own_part,
    present,
    written,
)


def test_the_least_busy_gpu_counts_and_what_is_not_known_is_open() -> None:
    assert level([0.9, 0.31]) == 31
    assert level([0.9, None]) == 0
    assert level([]) == 0
    assert level([0.001, 0.9]) == 1, "0 is open"


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
    [(50, 53, 80, False), (50, 55, 80, True), (79, 81, 80, True),
     (81, 79, 80, True), (81, 83, 80, False), (1, 0, 80, True), (0, 3, 80, True)],
)  # fmt: skip
def test_a_change_of_a_few_points_is_not_written(
    now: int, then: int, gate: int, worth: bool
) -> None:
    extra = written("", now, 3)
    assert extra is not None
    assert due(extra, then, 3, gate) is worth
    assert due(extra, then, 4, gate), "another number"
    assert due("", then, 3, gate)


def test_each_node_has_a_number_of_its_own_and_keeps_it() -> None:
    found = numbers({"n1": "", "n2": '{"coloc":4}', "n3": '{"coloc":4}', "n4": '{"coloc":0}'})
    assert found == {"n1": 5, "n2": 4, "n3": 6, "n4": 7}
    assert numbers({"n1": "", "n2": "rack b7"}) == {"n1": 1, "n2": 2}


def test_what_a_job_asks_for() -> None:
    assert constraint_below(80, [3]) == "smact<80&(coloc=3)"
    assert constraint_below(80, [5, 1, 2, 3]) == "smact<80&((coloc>=1&coloc<=3)|coloc=5)"
    assert constraint_below(80, []) is None
    assert constraint_below(80, range(1, 200, 2)) is None, "too long"
    assert constraint_below(80, range(1, 1000)) == "smact<80&((coloc>=1&coloc<=999))"


@pytest.mark.parametrize("own", ["", "rack=b7", "(rack=b1|rack=b3)&disk>2"])
@pytest.mark.parametrize("ours", ["smact<1&(coloc=3)", "smact<80&((coloc>=1&coloc<=3)|coloc=5)"])
def test_an_owner_s_constraint_stays(own: str, ours: str) -> None:
    extra = joined(own, ours)
    assert own_part(extra) == own
    assert limit_pct(extra) == int(ours[6:].partition("&")[0])
    assert own_part(joined(extra, ours)) == own, "ours is not put beside ours"
    assert limit_pct(own) is None


def test_a_constraint_that_was_taken_away_keeps_off_no_node() -> None:
    assert (limit_pct(OPENED), own_part(OPENED)) == (None, "")
    assert limit_pct("(null)") is None and own_part("(null)") == ""
