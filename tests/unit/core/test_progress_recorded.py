# SPDX-License-Identifier: Apache-2.0
"""The time left, forecast on recorded logs of real frameworks (tests/progress)."""

import pytest

from tests.progress.recording import LOGS, load, replayed

FRAMEWORKS = ("lightning", "transformers", "keras", "ignite", "accelerate")


@pytest.mark.parametrize("kind", FRAMEWORKS)
def test_of_ten_forecasts_eight_are_within_a_tenth(kind: str) -> None:
    """Of the run, at each tenth of it; a log that is not understood counts as wrong."""
    good = every = 0
    paths = sorted(LOGS.glob(f"{kind}-*.gz"))
    for path in paths:
        one = load(path)
        for over, told in replayed(one):
            if round(over * 100) % 10:
                continue
            left_s = one.lasted_s * (1 - over)
            known = told.left_s if told else None
            good += known is not None and abs(known - left_s) <= 0.1 * one.lasted_s
            every += 1
    assert len(paths) >= 2 and good >= 0.8 * every
