# SPDX-License-Identifier: Apache-2.0
"""The workshop paper's statements beside both models."""

import pytest

from slurm_coloc.core.place.interference import FITTED, REFERENCE
from tests.paper import settings
from tests.paper.facts import folder
from tests.paper.statements import around, judged, markdown, numbers, table


def test_ranges() -> None:
    assert judged((1.2, 1.4), (1.0, 1.5)) == "yes"
    assert judged((1.2, 1.6), (1.0, 1.5)) == "partly"
    assert judged((1.6, 1.7), (1.0, 1.5)) == "no"
    assert around(2.0) == pytest.approx((1.88, 2.12))
    assert numbers("50-110") == [50, 110]
    assert numbers("about 1x") == [1]


def test_table_2_by_hand() -> None:
    """Streams: both at 1/1.08 while ResNet152 runs; the recommender has the rest alone."""
    found = settings.table_2(REFERENCE, "streams", 5.0, 1.0)
    assert found.resnet152_h == pytest.approx(1.08)
    assert found.recommender_h == pytest.approx(5.0 - 1.0 + 1.08)
    assert found.total_h == found.recommender_h
    assert found.smact == pytest.approx((0.82 + 0.05) / 1.08)
    cut = settings.table_2(REFERENCE, "mig", 5.0, 1.0)
    assert cut.recommender_h == pytest.approx(5.0)
    assert cut.smact == pytest.approx(42 / 108)


def test_mixed_of_jobs_that_do_not_meet() -> None:
    saved, slower = settings.mixed(FITTED, "streams", 0, 1)
    assert (saved, slower) == pytest.approx((0.0, 1.0))


def test_no_facts_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLOC_FACTS", "/nonexistent")
    assert table() == []


def test_every_miss_is_explained() -> None:
    facts = folder()
    if facts is None:
        pytest.skip("the facts are not here (COLOC_FACTS)")
    rows = table(facts)
    assert {f"E{number}" for number in range(1, 20)} <= {row.id.split()[0] for row in rows}
    assert len({row.id for row in rows}) == len(rows)
    for row in rows:
        assert set(row.verdicts) <= {"yes", "partly", "no", "not judged"}
        assert bool(row.why_not) == (set(row.verdicts) != {"yes"}), row
    # What both models were said to get right.
    both = {row.id for row in rows if set(row.verdicts) == {"yes"}}
    assert {"E3 mps", "E4 mig", "E6", "E15", "E17", "E18", "T2-4-total_time"} <= both
    assert len(markdown(rows)) == len(rows) + 2
