# SPDX-License-Identifier: Apache-2.0
"""A history of millions of runs: no question may read all of it. SQLite chooses the way to the rows
by the question and the indices alone, so that a small database shows it (tests/bench/store_bench.py
has what it costs in a large one)."""

import re
import sqlite3
import time
from pathlib import Path

import pytest

from slurm_coloc.adapters.store import Store
from slurm_coloc.adapters.store.schema import MIGRATIONS
from slurm_coloc.core.records.lists import StretchedRun
from slurm_coloc.core.records.runs import Run
from tests.bench import store_bench
from tests.unit.flow.test_store import decision, run_row

RUNS = store_bench.OPEN + 1000
#: Reads every row, or every row of one of two modes.
ALL = re.compile(
    r"SCAN (runs|decisions|events|reports|work|same)\b"
    r"(?! USING (COVERING )?INDEX (decisions_unbound|runs_open|work_raised)\b)"
    r"|INDEX decisions_by_mode \(mode=\?\)$"
)
#: Asked once by a person, and of an index alone: it counts all decisions.
COUNTS = "coloc status"
LAYOUT = 12  # the last one without the table of what ran out


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = Store.open(tmp_path_factory.mktemp("long"))
    store_bench.fill(store, RUNS)
    return store


def ways(store: Store, statements: list[str]) -> list[str]:
    """How SQLite would find the rows of each statement."""
    conn = store._db.conn
    return [
        str(step[3])
        for sql in statements
        if sql.startswith(("SELECT", "DELETE", "UPDATE", "WITH"))
        for step in conn.execute(f"EXPLAIN QUERY PLAN {sql}")
    ]


def test_no_question_reads_the_whole_history(long: Store) -> None:
    conn, seen = long._db.conn, 0
    for who, name, ask in store_bench.questions(long, RUNS):
        statements: list[str] = []
        conn.set_trace_callback(statements.append)
        ask()
        conn.set_trace_callback(None)
        found = ways(long, statements)
        seen += len(found)
        if name != COUNTS:
            assert not [step for step in found if ALL.search(step)], f"{who}, {name}: {found}"
    assert seen > 50


def test_a_year_of_observe_mode_is_not_gone_through(long: Store) -> None:
    """Its decisions have no runs: an index without them finds the runs of a training."""
    statements: list[str] = []
    long._db.conn.set_trace_callback(statements.append)
    assert long.queries.lasted_s(store_bench.of_the_busiest(RUNS))
    long._db.conn.set_trace_callback(None)
    index = "SELECT sql FROM sqlite_master WHERE name = 'decisions_by_training'"
    assert "WHERE mode = 'on'" in long._db.execute(index).fetchone()[0]
    assert any("decisions_by_training" in step for step in ways(long, statements))


def test_answers_of_a_long_history(long: Store) -> None:
    """The newest are found whatever way is taken."""
    ask = long.queries
    busy = ask.recent_runs(store_bench.BUSY, 10)
    assert [run.uid for run in busy] == [store_bench.BUSY] * 10
    assert [run.job_id for run in busy] == sorted((run.job_id for run in busy), reverse=True)
    assert ask.recent_runs(store_bench.BUSY, 10, since_s=1.0) == busy
    assert ask.recent_runs(store_bench.BUSY, 10, only_open=True) == busy
    everybody = ask.recent_runs(None, 10)
    assert len({run.uid for run in everybody}) > 1 and everybody[0].job_id >= busy[0].job_id
    assert ask.recent_runs(store_bench.RARE, 100, since_s=time.time()) == []
    lasted = ask.lasted_s(store_bench.of_the_busiest(RUNS))
    assert len(lasted) == 20 and set(map(round, lasted)) == {7200}
    share = long.runs.oom_share_mib("sweep", "32/0/adam/fp32", store_bench.BUSY)
    assert share == 6144
    assert long.runs.oom_share_mib("sweep", "other", store_bench.BUSY) is None


def test_what_ran_out_before_the_upgrade_still_counts(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "coloc.db")
    for step in MIGRATIONS[:LAYOUT]:
        for statement in step:
            connection.execute(statement)
    connection.execute(
        """INSERT INTO decisions (id, cluster, made_s, uid, mode, action, reason, detail, shards,
             shard_mib, shards_per_gpu, fingerprint, options, features, request, exclusive_tres,
             may_requeue) VALUES ('d', 'c', 1, 7, 'on', 'collocate', 'fits', '', 6, 1024, 39, 'f',
             'o', '{}', '{}', 'gres/gpu:1', 1)"""
    )
    rows = [(1, 6144, "self"), (2, 7168, None), (3, 30_000, "neighbour"), (4, None, "self")]
    connection.executemany(
        """INSERT INTO runs (decision, job_id, restart, uid, state, outcome, open, end_s, share_mib,
             blame) VALUES ('d', ?, 0, 7, 'FAILED', 'oom-gpu', 0, 9, ?, ?)""",
        rows,
    )
    connection.execute(f"PRAGMA user_version = {LAYOUT}")
    connection.commit()
    connection.close()
    store = Store.open(tmp_path)
    assert store.runs.oom_share_mib("f", "o", 7) == 7168, "a neighbour's doing does not count"
    store.runs.see(Run("d", 5, 0, uid=7, state="RUNNING"))
    [run] = store.runs.open()
    store.runs.close(run, outcome="oom-gpu", share_mib=8192, blame="self", end_s=10.0)
    assert store.runs.oom_share_mib("f", "o", 7) == 8192
    # It leaves the history with the last run of its training that ran out.
    store.forget_history(10.0)
    assert store.runs.oom_share_mib("f", "o", 7) == 8192
    store.forget_history(11.0)
    assert store.runs.oom_share_mib("f", "o", 7) is None


def test_who_ran_beside_was_on_its_node(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.decisions.add(decision())
    nodes = {1: "g1", 2: "g1", 3: "g2", 4: "g[1-3]", 5: "g1,h1", 6: None}
    for job_id, node in nodes.items():
        store.runs.see(run_row(job_id=job_id, node=node, start_s=100.0))
    for run in store.runs.open():
        if run.job_id != 2:
            store.runs.close(run, outcome="completed", end_s=200.0)
    [mine], [wide] = store.runs.of_job(1), store.runs.of_job(4)
    assert {run.job_id for run in store.runs.beside(mine, 150, 160)} == {2, 4, 5, 6}
    assert {run.job_id for run in store.runs.beside(wide, 150, 160)} == {1, 2, 3, 5, 6}
    assert {run.job_id for run in store.runs.beside(mine, 200, 260)} == {2}


@pytest.mark.parametrize(("state", "ended"), [("RUNNING", [8]), ("SUSPENDED", [])])
def test_a_suspended_share_does_not_keep_what_has_ended(
    tmp_path: Path, state: str, ended: list[int]
) -> None:
    """Its loss is not counted on, so that all runs since would be read each five seconds."""
    store, now = Store.open(tmp_path), time.time()
    store.decisions.add(decision())
    share, other = run_row(state=state, start_s=now - 900), run_row(job_id=8, start_s=now - 900)
    store.runs.see(share)
    store.runs.see(other)
    store.runs.close(other, outcome="completed", end_s=now - 300)
    store.stretches.add(
        StretchedRun(*share.key, uid=1000, base_s=3600.0, set_s=None, at_s=now - 600,
                     start_s=now - 900, created_s=now, updated_s=now)
    )  # fmt: skip
    assert [run.job_id for run in store.stretches.present(now) if not run.open] == ended
