# SPDX-License-Identifier: Apache-2.0
"""What an ended run leads to in the database: its next try, its siblings', what is remembered."""

import time
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.adapters.store import Store
from slurm_coloc.config import Config
from slurm_coloc.core.records.lists import ArrayPlan
from slurm_coloc.core.records.runs import Run
from slurm_coloc.core.recover.outcome import Outcome
from slurm_coloc.core.slurm.job import JobView
from slurm_coloc.flow.nodes import epilog
from slurm_coloc.flow.watch.record import Recorder
from tests.unit.flow.test_store import DECISION, decision, report, run_row

GPU = "GPU-5a3b1c2d-0000-1111-2222-333344445555"
OOM = {"oom": True, "kind": "cuda_oom", "line": "CUDA out of memory"}
FAULT = {"oom": False, "kind": "device", "line": "CUDA error: unspecified launch failure"}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    found = Store.open(tmp_path)
    found.decisions.add(decision())
    return found


def end(
    store: Store,
    outcome: Outcome = Outcome.OOM_GPU,
    config: Config | None = None,
    priority: int = 400,
    **changes: Any,
) -> Run:
    """Let a run begin and end; its row."""
    told = {name: changes.pop(name) for name in ("evidence", "method") if name in changes}
    store.runs.see(run_row(**changes))
    key = {"job_id": 7, "restart": 0, **changes}
    key = {name: key[name] for name in ("job_id", "restart")}
    body = report(**key, **told, gpu_uuids=[GPU], exit_code=1, signal=0, ended_s=time.time())
    epilog.take(store, body)
    run = next(
        one
        for one in store.runs.open()
        if (one.job_id, one.restart) == (key["job_id"], key["restart"])
    )
    recorder = Recorder(config or Config(), store)
    view = JobView(key["job_id"], "FAILED", exit_code=1, priority=priority)
    recorder.end(run, outcome, view, recorder.report_on(run))
    return next(one for one in store.runs.of_job(key["job_id"]) if one.restart == key["restart"])


def plans(store: Store) -> list[tuple[int, str, str]]:
    return [(row.restart, row.way, row.tres) for row in store.recoveries.open()]


def test_more_memory_and_then_a_whole_gpu(store: Store) -> None:
    told = {**OOM, "in_use_mib": 11_000, "requested_mib": 4_000}
    end(store, evidence=told)
    assert plans(store) == [(0, "more", "gres/shard:19")]  # 1.25 x 15,000 MiB
    second = end(store, evidence=told, restart=1, tres="gres/shard:19")
    assert second.share_mib == 19 * 1024
    assert plans(store)[1] == (1, "whole", "gres/gpu:1")
    third = end(store, evidence=told, restart=2, tres="gres/gpu:1")
    assert third.verdict == "does-not-fit"
    assert store.runs.oom_share_mib("f", "o", 1000) == 19 * 1024


def test_the_clients_of_a_failed_server_all_come_back(store: Store) -> None:
    """The first to be judged cannot know of the other: it is judged again."""
    first = end(store, Outcome.FAILED, evidence=FAULT, method="mps")
    assert (first.verdict, first.blame) == ("not-ours", None)
    second = end(store, Outcome.FAILED, evidence=FAULT, method="mps", job_id=8)
    assert (second.verdict, second.blame) == ("requeue-victim", "mps-fault")
    again = store.runs.of_job(7)[0]
    assert (again.verdict, again.blame) == ("requeue-victim", "mps-fault")
    assert {(row.job_id, row.way, row.cause) for row in store.recoveries.open()} == {
        (7, "same", "mps-fault"),
        (8, "same", "mps-fault"),
    }
    # Nothing of it counts.
    assert store.recoveries.tally(7, DECISION, 1000, time.time()) == (0, 0, 0)
    told = [one.text for one in store.events(DECISION, 7) if one.kind == "ended"]
    assert [one.split(":")[0] for one in told] == [
        "failed for another reason than GPU memory",
        "failed, caused by a fault of MPS",
    ]


def test_a_log_that_could_not_be_judged_has_no_reason(store: Store) -> None:
    """Slurm 22.05 may start a job again without its Prolog."""
    line = "log not judged: what earlier runs wrote cannot be told apart"
    run = end(store, Outcome.FAILED, evidence={"oom": False, "kind": "not-judged", "line": line})
    told = [one.text for one in store.events(DECISION, run.job_id) if one.kind == "ended"]
    assert told == [f"failed, and nothing tells why: {line}"]


def test_a_fault_alone_is_its_own(store: Store) -> None:
    assert end(store, Outcome.FAILED, evidence=FAULT, method="mps").verdict == "not-ours"
    other = end(store, Outcome.FAILED, evidence=FAULT, method="streams", job_id=8)
    assert other.verdict == "not-ours"
    assert store.recoveries.open() == []


def test_a_fault_before_it_began_was_not_its_own_server_s(store: Store) -> None:
    now = time.time()
    end(store, Outcome.FAILED, evidence=FAULT, method="mps", start_s=now - 100)
    later = end(store, Outcome.FAILED, evidence=FAULT, method="mps", job_id=8, start_s=now + 1)
    assert (later.verdict, later.blame) == ("not-ours", None)
    assert store.runs.of_job(7)[0].blame is None


def test_fronts_of_a_day_and_the_priority_of_the_first_run(store: Store) -> None:
    config = Config.model_validate({"recovery": {"max_first_per_user_day": 2}})
    for job_id in (7, 8, 9):
        end(store, config=config, job_id=job_id)
    end(store, config=config, job_id=7, restart=1, priority=100_000)
    found = {(row.job_id, row.restart): row for row in store.recoveries.open()}
    assert [found[job, 0].front for job in (7, 8, 9)] == [1, 1, 0]
    assert found[7, 1].base == 400, "not the raised one"
    assert found[7, 1].front == 0


def plan(store: Store, tres: str, was: str = "gres/shard:5", why: str = "oom-gpu") -> bool:
    new = ArrayPlan(
        decision=DECISION, array_job_id=7, uid=1000, was=was, tres=tres, why=why,
        updated_s=time.time(),
    )  # fmt: skip
    return store.arrays.plan(new)


def test_siblings_only_ever_grow_after_an_out_of_memory(store: Store) -> None:
    assert plan(store, "gres/shard:10")
    assert not plan(store, "gres/shard:10"), "the same again"
    assert not plan(store, "gres/shard:3", why="completed"), "peaks make nothing smaller"
    assert plan(store, "gres/gpu:1", was="gres/shard:10")
    assert not plan(store, "gres/shard:10"), "a late one of the first share"
    row = store.arrays.of(DECISION)
    assert row is not None
    assert (row.tres, row.was) == ("gres/gpu:1", "gres/shard:5 gres/shard:10")
