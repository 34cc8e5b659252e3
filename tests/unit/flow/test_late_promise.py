# SPDX-License-Identifier: Apache-2.0
"""A run whose Prolog had no answer of colocd in its time: its agent learns the promise."""

import json
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.adapters.store import Store
from slurm_coloc.core.peer import Peer
from slurm_coloc.flow.node.jobs_here import add_promise, read_state
from slurm_coloc.flow.nodes.agents import Nodes
from slurm_coloc.flow.nodes.late_promise import late_promises
from tests.unit.cli.conftest import decision, run_row

GPU = "GPU-5a3b1c2d-0000-1111-2222-333344445555"
NAME = "0123456789ab"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Job 7 runs on n1 and has 12 shards."""
    found = Store.open(tmp_path)
    found.decisions.add(decision(NAME))
    found.runs.see(run_row(NAME, 7))
    return found


def state(run_dir: Path, **changes: Any) -> Path:
    """What a Prolog without an answer left."""
    run_dir.mkdir(exist_ok=True)
    path = run_dir / "7.json"
    nothing = {"available": False, "reason": "colocd: no answer"}
    path.write_text(
        json.dumps(
            {
                "schema": 1, "job_id": 7, "restart": 0, "uid": 1000, "started_s": 5.0,
                "gpu": {"available": True, "devices": [{"uuid": GPU}]}, "reservation": nothing,
                "sharing": {"method": "streams"}, "took_s": 0.6,
            }
            | changes
        )
    )  # fmt: skip
    path.chmod(0o600)
    return path


def told(store: Store) -> dict[str, Any]:
    nodes = Nodes(lambda: None, {0}, store)
    message = {"gpus": [], "without": [[7, 0, [GPU]], [8, 0, []]]}
    [promise] = nodes.hear("n1", Peer(uid=0, remote=True), message)["promises"]
    return promise


def test_the_promise_comes_with_a_heartbeat(store: Store, tmp_path: Path) -> None:
    path = state(tmp_path / "run")
    promise = told(store)
    learned = add_promise(tmp_path / "run", promise)
    job = read_state(path.read_bytes())
    assert job == learned
    assert job is not None and job.promised_mib == 12 * 1024 and job.account == "physics"
    assert job.promised_on(GPU) == 12 * 1024
    assert path.stat().st_mode & 0o777 == 0o600
    assert not add_promise(tmp_path / "run", promise), "it is there already"
    [run] = store.runs.of_job(7)
    assert run.gpu_uuids == (GPU,)
    [event] = [one for one in store.events(NAME, 7) if one.kind == "launch"]
    assert "its Prolog had no answer" in event.text


def test_the_account_is_the_users_default_where_none_was_named(tmp_path: Path) -> None:
    found = Store.open(tmp_path)
    found.decisions.add(decision(NAME, account=None, request={"default_account": "biology"}))
    found.runs.see(run_row(NAME, 7))
    assert late_promises(found, "n1", [[7, 0, [GPU]]])[0]["account"] == "biology"


@pytest.mark.parametrize("without", [[[7, 1, []]], [[9, 0, []]], [[7, 0, ["a b"]]], "x", [[7]]])
def test_what_is_not_known_is_not_promised(store: Store, without: Any) -> None:
    assert late_promises(store, "n1", without) == []


def test_only_the_runs_of_that_node(store: Store) -> None:
    assert late_promises(store, "n2", [[7, 0, [GPU]]]) == []
    run = store.runs.of_job(7)[0]
    store.runs.close(run, state="COMPLETED", outcome="completed", exit_code=0, end_s=1.0)
    assert late_promises(store, "n1", [[7, 0, [GPU]]]) == []


@pytest.mark.parametrize(
    "changes", [{"restart": 1}, {"took_s": None}, {"reservation": {"available": True, "shards": 1,
                                                                   "shard_mib": 1}}]
)  # fmt: skip
def test_another_run_or_a_prolog_that_still_works(
    store: Store, tmp_path: Path, changes: dict[str, Any]
) -> None:
    path = state(tmp_path / "run", **changes)
    if changes.get("took_s", 1) is None:
        plain = json.loads(path.read_text())
        del plain["took_s"]
        path.write_text(json.dumps(plain))
    before = path.read_bytes()
    assert not add_promise(tmp_path / "run", told(store))
    assert path.read_bytes() == before


@pytest.mark.parametrize("promise", [{}, {"job_id": "7"}, {"job_id": 7, "restart": 0}])
def test_a_promise_without_figures_changes_nothing(tmp_path: Path, promise: dict[str, Any]) -> None:
    before = state(tmp_path / "run").read_bytes()
    assert not add_promise(tmp_path / "run", promise)
    assert (tmp_path / "run" / "7.json").read_bytes() == before
