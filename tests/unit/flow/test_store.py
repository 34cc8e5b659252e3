# SPDX-License-Identifier: Apache-2.0
"""The database: migrations, runs closed once, tallies, the spool."""

import json
import sqlite3
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.adapters.store import Store
from slurm_coloc.adapters.store.localdisk import file_system, require_local
from slurm_coloc.adapters.store.schema import MIGRATIONS
from slurm_coloc.adapters.store.table import Table
from slurm_coloc.config import Config
from slurm_coloc.core.records.runs import Report, Run, StoredDecision
from slurm_coloc.core.recover.outcome import Outcome
from slurm_coloc.core.slurm.job import JobView
from slurm_coloc.errors import ConfigError
from slurm_coloc.flow.nodes import epilog
from slurm_coloc.flow.submit import history
from slurm_coloc.flow.watch.record import Recorder

DECISION = "0123456789ab"


def decision(**changes: Any) -> StoredDecision:
    row = {
        "id": DECISION, "cluster": "c", "made_s": time.time(), "uid": 1000, "account": "a",
        "partition": "main", "mode": "on", "action": "collocate", "reason": "fits", "detail": "",
        "shards": 12, "shard_mib": 1024, "shards_per_gpu": 39, "estimator": "text",
        "memory_mib": 9000, "upper_mib": 12000, "smact": None, "fingerprint": "f",
        "options": "o", "exclusive_tres": "gres/gpu:1",
        "may_requeue": True,
    }  # fmt: skip
    return StoredDecision(**{**row, **changes})


def run_row(**changes: Any) -> Run:
    row = {
        "decision": DECISION, "job_id": 7, "restart": 0, "uid": 1000, "submit_s": time.time(),
        "state": "RUNNING", "node": "n1", "tres": "gres/shard:12", "start_s": None,
    }  # fmt: skip
    return Run(**{**row, **changes})


OOM = Report(evidence={"oom": True, "kind": "cuda_oom", "line": "CUDA out of memory"})


def report(**changes: Any) -> dict[str, Any]:
    evidence = {"oom": True, "kind": "cuda_oom", "line": "CUDA out of memory"}
    body = {"v": 1, "op": "report", "job_id": 7, "restart": 0, "node": "n1", "evidence": evidence}
    return {**body, **changes}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    found = Store.open(tmp_path)
    found.decisions.add(decision())
    found.runs.see(run_row())
    return found


def test_opening_twice_migrates_once_and_a_newer_layout_is_refused(tmp_path: Path) -> None:
    Store.open(tmp_path).close()
    Store.open(tmp_path).close()
    connection = sqlite3.connect(tmp_path / "coloc.db")
    assert connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    connection.execute("PRAGMA user_version = 999")
    connection.close()
    with pytest.raises(ConfigError, match="newer"):
        Store.open(tmp_path)


def older(folder: Path, jobs: int = 3) -> int:
    """A database of the release before, in WAL as it was left by a kill; its layout."""
    layout = len(MIGRATIONS) - 1
    connection = sqlite3.connect(folder / "coloc.db")
    connection.execute("PRAGMA journal_mode = WAL")
    for step in MIGRATIONS[:layout]:
        for statement in step:
            connection.execute(statement)
    sql = "INSERT INTO events (at_s, decision, kind, text) VALUES (?, 'd', 'k', 't')"
    connection.executemany(sql, [(float(n),) for n in range(jobs)])
    connection.execute(f"PRAGMA user_version = {layout}")
    connection.commit()
    connection.close()
    return layout


def test_the_way_back_from_an_upgrade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the layout changes the database is copied; the older release names the copy, and has
    everything again once it is put back."""
    layout = older(tmp_path)
    Store.open(tmp_path).close()
    copy = tmp_path / f"coloc.db.layout-{layout}"
    assert copy.stat().st_mode & 0o077 == (tmp_path / "coloc.db").stat().st_mode & 0o077
    before = copy.stat().st_mtime_ns
    Store.open(tmp_path).close()
    assert copy.stat().st_mtime_ns == before  # nothing changed: no new copy
    monkeypatch.setattr("slurm_coloc.adapters.store.MIGRATIONS", MIGRATIONS[:layout])
    with pytest.raises(ConfigError, match=f"install that release, or put its copy .*{copy}"):
        Store.open(tmp_path)
    for old in tmp_path.glob("coloc.db-*"):
        old.unlink()
    copy.replace(tmp_path / "coloc.db")
    monkeypatch.setattr("slurm_coloc.adapters.store.schema.MIGRATIONS", MIGRATIONS[:layout])
    again = Store.open(tmp_path)
    assert len(again.events("d", None)) == 3
    again.close()


def test_no_room_for_the_copy(tmp_path: Path) -> None:
    """The upgrade goes on without it, and leaves no half of it behind."""
    layout = older(tmp_path)
    (tmp_path / f"coloc.db.layout-{layout}").mkdir()
    store = Store.open(tmp_path)
    assert len(store.events("d", None)) == 3
    assert not list(tmp_path.glob("*.part"))


def test_a_damaged_database_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "coloc.db").write_bytes(b"not a database" * 100)
    with pytest.raises(ConfigError, match=r"coloc\.db"):
        Store.open(tmp_path)


def test_network_disks_are_refused(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"server:/x {tmp_path} nfs4 rw 0 0\n/dev/sda1 / ext4 rw 0 0\n")
    assert file_system(tmp_path / "deep", mounts) == "nfs4"
    assert file_system(Path("/"), mounts) == "ext4"
    require_local(tmp_path)  # what really holds it is local


def test_an_oom_is_closed_once_and_planned_once(store: Store) -> None:
    recorder = Recorder(Config(), store)
    epilog.take(store, report())
    run = store.runs.open()[0]
    view = JobView(7, "FAILED", exit_code=1, tres_per_node="gres/shard:12")
    for _ in range(2):
        recorder.end(run, Outcome.OOM_GPU, view, recorder.report_on(run))
    assert store.runs.open() == []
    work = store.recoveries.open()
    assert [(row.job_id, row.restart, row.tres) for row in work] == [(7, 0, "gres/gpu:1")]
    assert store.runs.oom_share_mib("f", "o", 1000) == 12 * 1024
    assert store.runs.oom_share_mib("f", "o", 1001) is None
    assert [line.kind for line in store.events(DECISION, 7)] == ["ended", "recover"]


def test_a_second_oom_of_the_same_job_meets_the_cap(store: Store) -> None:
    recorder = Recorder(Config(), store)
    view = JobView(7, "FAILED")
    recorder.end(store.runs.open()[0], Outcome.OOM_GPU, view, OOM)
    for restart in (1, 2):
        store.runs.see(run_row(restart=restart))
        recorder.end(store.runs.open()[0], Outcome.OOM_GPU, view, OOM)
    assert len(store.recoveries.open()) == 2
    verdicts = [row.verdict for row in store.runs.of_job(7)]
    assert verdicts == ["requeue", "requeue", "job-cap"]


def test_what_runs_out_on_a_whole_gpu_does_not_fit(store: Store) -> None:
    store.runs.see(run_row(job_id=8, tres="gres:gpu:1"))
    run = next(row for row in store.runs.open() if row.job_id == 8)
    Recorder(Config(), store).end(run, Outcome.OOM_GPU, JobView(8, "FAILED"), OOM)
    assert store.runs.of_job(8)[0].verdict == "does-not-fit"
    assert "this model does not fit this card" in store.events(DECISION, 8)[-1].text


def test_an_old_report_of_a_recycled_job_id_is_not_used(store: Store) -> None:
    epilog.take(store, report(ended_s=time.time() - 86400))
    assert Recorder(Config(), store).report_on(store.runs.open()[0]) is None


def test_a_peak_that_may_be_too_low_makes_no_share_smaller(store: Store) -> None:
    """The agent was away while the tasks grew; a larger share they may still bring."""
    [run] = store.runs.open()
    use: Any = {"complete": False, "gpus": []}
    store.runs.close(run, outcome="completed", end_s=time.time(), peak_mib=2000, used=[use])
    assert store.runs.completed_peaks_mib(DECISION) == [2000]
    assert store.runs.completed_peaks_mib(DECISION, 0.0) == []


@pytest.mark.parametrize(("node", "whole"), [("n1", True), ("n[1-2]", False)])
def test_a_node_that_said_nothing_may_have_held_more(store: Store, node: str, whole: bool) -> None:
    use: Any = {"node": "n1", "since_s": 100.0, "complete": True, "gpus": [{"peak_mib": 2400}]}
    run = history.ended(replace(run_row(), node=node, start_s=100.0), None, 700.0, 12 * 1024)
    found = history.own_peak(store, run, decision(), Report(), [use])
    assert found is not None and (found.peak_mib, found.whole) == (2400, whole)


def test_spool_is_drained_and_bad_files_are_set_aside(store: Store, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    (spool / "7.0.n1.json").write_text(json.dumps(report()))
    (spool / "8.0.n1.json").write_text("{broken")
    (spool / "9.0.n1.json").write_text(json.dumps(report(job_id=-1)))
    (spool / "10.json").symlink_to("/etc/shadow")
    (spool / "11.json").write_text(" " * 70000)
    assert epilog.drain(store, spool) == [7]
    assert sorted(path.name for path in spool.iterdir()) == [
        "10.bad", "11.bad", "8.0.n1.bad", "9.0.n1.bad",
    ]  # fmt: skip
    assert epilog.drain(store, spool) == []


def test_closing_survives_a_crash_in_the_middle(store: Store, monkeypatch: Any) -> None:
    """The run and its recovery are one transaction: a death between them leaves neither."""
    recorder = Recorder(Config(), store)
    run = store.runs.open()[0]
    with monkeypatch.context() as patched:
        patched.setattr(
            store.recoveries, "add", lambda row: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        with pytest.raises(KeyboardInterrupt):
            recorder.end(run, Outcome.OOM_GPU, JobView(7, "FAILED"), OOM)
    assert len(store.runs.open()) == 1
    recorder.end(run, Outcome.OOM_GPU, JobView(7, "FAILED"), OOM)
    assert len(store.recoveries.open()) == 1


def test_history_is_forgotten_with_all_of_its_rows_but_never_an_open_run(store: Store) -> None:
    later = time.time() + 10
    store.forget_history(later)
    assert store.decisions.of(DECISION) is not None  # its run goes on
    Recorder(Config(), store).end(store.runs.open()[0], Outcome.OOM_GPU, JobView(7, "FAILED"), OOM)
    store.forget_history(later)
    assert store.decisions.of(DECISION) is None
    assert store.runs.of_job(7) == store.recoveries.open() == store.events(DECISION, 7) == []


def test_the_fields_of_a_record_are_the_columns_of_its_table(store: Store) -> None:
    for table in vars(store).values():
        if isinstance(table, Table):
            columns = {row[1] for row in store._db.execute(f"PRAGMA table_info({table.NAME})")}
            assert {one.name for one in fields(table.RECORD)} == columns, table.NAME


def test_what_is_stored_comes_back_and_a_wrong_name_is_refused(store: Store) -> None:
    run = store.runs.open()[0]
    changes = {"gpu_uuids": ("GPU-1",), "evidence": {"oom": True}, "used": [{"node": "n1"}]}
    store.runs.change(run, **changes)
    assert store.runs.of(*run.key) == run == replace(run_row(submit_s=run.submit_s), **changes)
    assert run.open is True
    with pytest.raises(TypeError, match="no field outcom"):
        store.runs.close(run, outcom="completed")
    assert store.runs.open() == [run]


def _ended(store: Store, job_id: int, **changes: Any) -> None:
    """A completed run of the store's decision that lasted a minute."""
    now = time.time()
    row = {"job_id": job_id, "start_s": now - 60, "gpu_uuids": ("GPU-1",)} | changes
    store.runs.see(run_row(**row))
    view = JobView(job_id, "COMPLETED", end_s=row.get("end_s", now))
    (run,) = [one for one in store.runs.of_job(job_id) if one.restart == row.get("restart", 0)]
    Recorder(Config(), store).end(run, Outcome.COMPLETED, view, None)


def test_a_run_that_goes_on_is_never_left_out_for_newer_ones(store: Store) -> None:
    for job_id in range(100, 120):
        _ended(store, job_id)
    newest = store.queries.recent_runs(None, 10, open_first=True)
    assert [run.job_id for run in newest] == [7, *range(119, 110, -1)]


def test_an_idle_spell_is_of_one_run(store: Store) -> None:
    now = time.time()
    _ended(store, 8, restart=0, start_s=now - 5000, end_s=now - 4000)
    _ended(store, 8, restart=1, start_s=now - 60, end_s=now)
    store.note(DECISION, 8, "idle", "holds a GPU")
    store.note(DECISION, 8, "idle", "holds a GPU")
    store._db.execute("UPDATE events SET at_s = ? WHERE kind = 'idle'", (now - 30,))
    assert [run.idle for run in store.queries.past_runs(None, 0.0, 10)] == [True, False]


@pytest.mark.parametrize(
    ("estimator", "estimate"), [("text", 9000), ("user", None), ("site", None)]
)
def test_what_somebody_named_is_no_estimate(
    store: Store, estimator: str, estimate: int | None
) -> None:
    store.decisions.add(decision(id="b" * 12, estimator=estimator))
    _ended(store, 9, decision="b" * 12)
    (run,) = store.queries.past_runs(None, 0.0, 10)
    assert run.memory_mib == estimate
