# SPDX-License-Identifier: Apache-2.0
"""What pairs of trainings on one card tell of another one."""

import math

import pytest

from estimator.interference.cards import speeds, spread

ONE = {
    "a": {"null": 10.0, "a": [6.0, 4.0], "b": [8.0, 1.0], "c": [0.0, 0.0]},
    "b": {"null": 2.0, "a": [1.0, 8.0], "b": [1.0, 1.0]},
}
OTHER = {"a": {"null": 20.0, "b": [12.0, 4.0]}, "b": {"null": 5.0, "a": [4.0, 12.0]}}


def test_a_speed_is_a_rate_over_that_alone() -> None:
    assert speeds(ONE) == {
        ("a", "a"): 0.5,
        ("a", "b"): 0.8,
        ("b", "a"): 0.5,
        ("b", "b"): 0.5,
    }
    assert speeds(ONE, frozenset("b")) == {("a", "a"): 0.5}


def test_what_two_cards_differ_by() -> None:
    number, plain, logs, constant = spread(speeds(ONE), speeds(OTHER))
    assert number == 2
    assert plain == pytest.approx(math.sqrt((0.2**2 + 0.3**2) / 2))
    assert logs == pytest.approx(
        math.sqrt((math.log(0.6 / 0.8) ** 2 + math.log(0.8 / 0.5) ** 2) / 2)
    )
    assert constant == pytest.approx(0.1)


def test_cards_without_a_pair_in_common() -> None:
    with pytest.raises(SystemExit, match="no pair was measured on both"):
        spread(speeds(ONE), {})
