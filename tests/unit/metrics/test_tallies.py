# SPDX-License-Identifier: Apache-2.0
"""What the database counts by itself, for metrics."""

from dataclasses import replace
from pathlib import Path

import pytest

from slurm_coloc.adapters.store import Store
from slurm_coloc.core.records.queries import OpenRuns, Tally
from tests.unit.flow.test_store import decision, run_row


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path)


def tallies(store: Store) -> dict[tuple[str, tuple[str, ...]], float]:
    return {(one.what, one.labels): one.n for one in store.queries.tallies()}


def test_decisions_by_action_reason_and_mode(store: Store) -> None:
    for number in range(3):
        store.decisions.add(decision(id=f"{number:012x}"))
    other = {"mode": "observe", "action": "exclusive", "reason": "no-model"}
    store.decisions.add(decision(id="f" * 12, **other))
    assert tallies(store) == {
        ("decisions", ("collocate", "fits", "on")): 3.0,
        ("decisions", ("exclusive", "no-model", "observe")): 1.0,
    }


def test_a_run_is_counted_at_its_end_once(store: Store) -> None:
    store.decisions.add(decision(memory_mib=9000))
    run = run_row()
    store.runs.see(run)
    assert store.queries.open_runs() == [OpenRuns("RUNNING", "collocate", 1)]
    ended = {"outcome": "completed", "verdict": "none", "share_mib": 12288, "peak_mib": 9100}
    assert store.runs.close(run, **ended)
    assert not store.runs.close(run, **ended)
    store.runs.change(run, blame="self")
    found = tallies(store)
    assert found["runs", ("completed", "none", "yes")] == 1.0
    # 1.01 of the estimate is above 1 and up to 1.05; 0.74 of the reservation up to 0.75.
    assert found["estimate", ("21",)] == 1.0
    assert found["estimate", ()] == pytest.approx(9100 / 9000)
    assert found["reserved", ("15",)] == 1.0
    assert store.queries.open_runs() == []


@pytest.mark.parametrize(("peak_mib", "end"), [(9000, "20"), (9001, "21"), (1, "1"), (90000, "80")])
def test_a_ratio_is_in_the_bin_that_ends_at_it(store: Store, peak_mib: int, end: str) -> None:
    store.decisions.add(decision(memory_mib=9000))
    run = run_row()
    store.runs.see(run)
    store.runs.close(run, outcome="completed", share_mib=12288, peak_mib=peak_mib)
    assert tallies(store)["estimate", (end,)] == 1.0


def test_what_is_not_known_has_no_ratio(store: Store) -> None:
    """No peak; no estimate; no share."""
    share = {"share_mib": 12288}
    runs = [(9000, share), (None, share | {"peak_mib": 5}), (9000, {"peak_mib": 5})]
    for number, (memory, changes) in enumerate(runs):
        key = f"{number:012x}"
        store.decisions.add(decision(id=key, memory_mib=memory))
        run = replace(run_row(), decision=key, job_id=number + 1)
        store.runs.see(run)
        store.runs.close(run, outcome="failed", **changes)
    found = tallies(store)
    assert not [one for one in found if one[0] == "estimate"]
    assert found["runs", ("failed", "", "yes")] == 2.0
    assert found["runs", ("failed", "", "no")] == 1.0


def test_forgotten_history_stays_counted(store: Store) -> None:
    store.decisions.add(decision(made_s=1.0))
    run = run_row()
    store.runs.see(run)
    store.runs.close(run, outcome="completed", share_mib=12288, peak_mib=6000)
    before = store.queries.tallies()
    assert store.forget_history(1e12) == 1
    assert store.queries.tallies() == before
    assert Tally("decisions", ("collocate", "fits", "on"), 1.0) in before
