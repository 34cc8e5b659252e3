# SPDX-License-Identifier: Apache-2.0
"""How often users may ask, and what of it is logged."""

from slurm_coloc.core.rates import KNOWN, LogLimit, Rate, Rates
from slurm_coloc.core.text import printable


def test_a_bucket_empties_and_fills() -> None:
    rates = Rates(Rate(2.0, 4.0), trusted={0})
    assert [rates.take(7, 100.0) for _ in range(4)] == [0.0] * 4
    assert rates.take(7, 100.0) == 0.5
    assert rates.take(8, 100.0) == 0.0, "another user's is full"
    assert rates.take(7, 100.5) == 0.0
    assert rates.take(7, 100.5) == 0.5
    assert not any(rates.take(0, 100.0) for _ in range(100))


def test_buckets_that_are_full_again_are_forgotten() -> None:
    rates = Rates(Rate(1.0, 2.0))
    for uid in range(KNOWN):
        rates.take(uid, 0.0)
    rates.take(KNOWN, 100.0)
    assert len(rates._buckets) == 1


def test_one_line_of_a_kind_in_a_second() -> None:
    limit = LogLimit(1.0)
    assert [limit.take("a", at) for at in (5.0, 5.1, 5.9, 6.0)] == [0, None, None, 2]
    assert limit.take("b", 5.1) == 0, "another kind"
    for number in range(2 * KNOWN):
        limit.take(str(number), 7.0)
    assert len(limit._kinds) <= KNOWN


def test_what_a_terminal_would_act_upon_is_escaped() -> None:
    assert printable("python3 train.py é") == "python3 train.py é"
    assert printable("\x1b]0;x\x07\n\u202e\udcff") == "\\x1b]0;x\\x07\\n\\u202e\\udcff"
