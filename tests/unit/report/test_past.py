# SPDX-License-Identifier: Apache-2.0
"""The ended runs that a report of many is made of, out of the database."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.adapters.store import Store
from slurm_coloc.core.report.past import unpacked
from slurm_coloc.errors import UsageFault
from slurm_coloc.flow.queries import report
from tests.unit.flow.test_store import decision, run_row

UUIDS = ("GPU-1", "GPU-2")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Three ended runs: ada's share, ben's whole GPU, and one that goes on; one of observe mode."""
    store = Store.open(tmp_path)
    rows: list[tuple[str, int, dict[str, Any], dict[str, Any] | None]] = [
        ("a", 1001, {"smact": 0.3},
         {"outcome": "oom-gpu", "blame": "self", "verdict": "requeue", "share_mib": 8192,
          "end_s": 200.0, "peak_mib": 7000, "gpu_uuids": UUIDS, "method": "mps"}),
        ("b", 1002, {"action": "exclusive", "account": None,
                     "request": {"default_account": "bio"}},
         {"outcome": "completed", "share_mib": 0, "end_s": 300.0}),
        ("c", 1001, {}, None),
        ("d", 1001, {"mode": "observe"}, {"outcome": "completed", "end_s": 300.0}),
    ]  # fmt: skip
    for number, (name, uid, decided, ended) in enumerate(rows, start=1):
        key = name * 12
        store.decisions.add(decision(id=key, uid=uid, **decided))
        run = replace(run_row(), decision=key, uid=uid, job_id=number, start_s=100.0)
        store.runs.see(run)
        if ended:
            store.runs.close(run, **ended)
    store.note("a" * 12, 1, "idle", "holds 7000 MiB")
    store._db.execute("UPDATE events SET at_s = 150 WHERE kind = 'idle'")
    return store


def test_what_a_run_tells(store: Store) -> None:
    answer = report.past(store, None, {})
    other, mine = unpacked(answer)  # the newest first
    assert (answer["all"], answer["more"]) == (True, False)
    assert (mine.job_id, mine.uid, mine.shared, mine.outcome) == (1, 1001, True, "oom-gpu")
    assert (mine.gpus, mine.peak_mib, mine.memory_mib, mine.smact) == (UUIDS, 7000, 9000, 0.3)
    assert (mine.blame, mine.verdict, mine.method, mine.idle) == ("self", "requeue", "mps", True)
    assert (mine.hours, mine.account) == (pytest.approx(2 * 100 / 3600), "a")
    assert (other.shared, other.gpus, other.account, other.idle) == (False, (), "bio", False)


def test_a_user_gets_his_own(store: Store) -> None:
    answer = report.past(store, 1001, {})
    assert [run.job_id for run in unpacked(answer)] == [1]
    assert answer["all"] is False


def test_since(store: Store) -> None:
    assert [run.job_id for run in unpacked(report.past(store, None, {"since_s": 250}))] == [2]
    for wrong in (-1, "x", True, math.nan, None):
        with pytest.raises(UsageFault, match="since_s"):
            report.past(store, None, {"since_s": wrong})


def test_too_many_are_cut(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "MOST_PAST", 1)
    answer = report.past(store, None, {})
    assert answer["more"] is True
    assert [run.job_id for run in unpacked(answer)] == [2]
