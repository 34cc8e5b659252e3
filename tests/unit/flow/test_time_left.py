# SPDX-License-Identifier: Apache-2.0
"""How long a running job still takes by how long earlier runs of its model took."""

import time
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.adapters.store import Store
from slurm_coloc.core.records.lists import StretchedRun
from slurm_coloc.flow.queries import answers
from tests.unit.cli.conftest import OWNER, STRANGER, decision, run_row

HOUR_S = 3600.0


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """The owner's job 9 has run for 20 minutes, a stranger's job 8 too."""
    found = Store.open(tmp_path)
    now_s = time.time()
    found.decisions.add(decision("00000000000a"))
    found.decisions.add(decision("00000000000b", uid=STRANGER))
    found.runs.see(run_row("00000000000a", 9, start_s=now_s - 1200))
    found.runs.see(run_row("00000000000b", 8, uid=STRANGER, start_s=now_s - 1200))
    return found


def earlier(store: Store, job_id: int, lasted_s: float, **changes: Any) -> None:
    """A run of the same model that has ended."""
    outcome = changes.pop("outcome", "completed")
    name = f"{job_id:012x}"
    store.decisions.add(decision(name, **changes))
    end_s = time.time() - 100
    run = run_row(name, job_id, uid=changes.get("uid", OWNER), start_s=end_s - lasted_s)
    store.runs.see(run)
    store.runs.close(run, state="COMPLETED", outcome=outcome, exit_code=0, end_s=end_s)


def told(store: Store, uid: int | None = None) -> dict[int, Any]:
    rows = answers.jobs(store, uid, {"all": uid is not None}, private=False)["jobs"]
    return {row["job_id"]: row["time_left"] for row in rows if row["outcome"] is None}


def test_earlier_runs_of_the_same_model(store: Store) -> None:
    for number, hours in enumerate((1.0, 1.1, 1.2)):
        earlier(store, 100 + number, hours * HOUR_S)
    found = told(store)[9]
    assert (found["by"], found["runs"], found["done"]) == ("earlier runs", 3, None)
    assert found["left_s"] == pytest.approx(1.1 * HOUR_S - 1200, abs=5)
    assert found["low_s"] == pytest.approx(1.0 * HOUR_S - 1200, abs=5)
    assert found["high_s"] == pytest.approx(1.2 * HOUR_S - 1200, abs=5)


def test_others_and_other_models_do_not_count(store: Store) -> None:
    earlier(store, 100, HOUR_S, uid=STRANGER)
    earlier(store, 101, HOUR_S, fingerprint="g")
    earlier(store, 102, HOUR_S, options="64/0/adam/fp32")
    earlier(store, 103, HOUR_S, outcome="failed")
    earlier(store, 104, 600.0)  # it took less than this one has taken already
    assert told(store)[9] is None


def test_nobody_is_told_of_anothers(store: Store) -> None:
    earlier(store, 100, HOUR_S)
    earlier(store, 101, HOUR_S, uid=STRANGER)
    assert {job for job, left in told(store).items() if left} == {8, 9}
    assert {job for job, left in told(store, STRANGER).items() if left} == {8}
    assert {job for job, left in told(store, OWNER).items() if left} == {9}


def test_the_speed_is_the_owners(store: Store) -> None:
    """Of runs whose speed is known, to those who may know it."""
    now_s = time.time()
    rows = ("00000000000a", 9, OWNER), ("00000000000b", 8, STRANGER), ("00000000000a", 10, OWNER)
    for name, job_id, uid in rows:
        row = StretchedRun(
            name, job_id, 0, uid=uid, base_s=None, set_s=None, at_s=now_s, start_s=now_s - 1200,
            created_s=now_s, updated_s=now_s, speed=0.8, others=1,
        )  # fmt: skip
        store.stretches.add(row)
    store.runs.see(run_row("00000000000a", 10, start_s=now_s - 5))  # nothing is measured yet

    def speeds(uid: int | None) -> dict[int, float | None]:
        rows = answers.jobs(store, uid, {"all": uid is not None}, private=False)["jobs"]
        return {row["job_id"]: row["speed"] for row in rows}

    assert speeds(None) == {8: 0.8, 9: 0.8, 10: None}
    assert speeds(OWNER) == {8: None, 9: 0.8, 10: None}


def test_the_newest_twenty(store: Store) -> None:
    for number in range(30):
        earlier(store, 100 + number, HOUR_S if number >= 10 else 10 * HOUR_S)
    found = told(store)[9]
    assert found["runs"] == 20 and found["left_s"] == pytest.approx(HOUR_S - 1200, abs=5)
