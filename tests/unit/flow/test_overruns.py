# SPDX-License-Identifier: Apache-2.0
"""What agents say of jobs that hold too much, as colocd keeps and tells it."""

from dataclasses import asdict
from typing import Any

import pytest

from slurm_coloc.adapters.store import Store
from slurm_coloc.core.records.runs import EndedRun, Report, Run
from slurm_coloc.core.recover.outcome import Blame, Cause, Outcome
from slurm_coloc.core.slurm.job import JobView
from slurm_coloc.flow.cluster.telemetry import Live
from slurm_coloc.flow.node.jobs_here import Job
from slurm_coloc.flow.watch.causes import blamed
from slurm_coloc.flow.watch.record import judge_ended
from tests.unit.flow.placers import ID
from tests.unit.flow.test_telemetry import answered, front

OVER = {
    "job_id": 7, "restart": 1, "uuid": "GPU-1", "since_s": 5.0, "held_mib": 30_000,
    "promised_mib": 5120,
}  # fmt: skip


def run() -> Run:
    """The run of conftest's job, restarted once."""
    return Run(decision=ID, job_id=7, restart=1, uid=1000, state="RUNNING", start_s=1.0)


@pytest.fixture
def running(store: Store) -> Store:
    store.runs.see(run())
    return store


def story(store: Store) -> list[str]:
    return [line.text for line in store.events(ID, 7) if line.kind == "overrun"]


def test_begin_and_end_are_told_once(running: Store) -> None:
    live = Live(running)
    for _ in range(3):
        live.take("n1", {"overruns": [OVER]})
    assert story(running) == ["holds 29.3 GiB on GPU-1, 5.0 GiB were promised (node n1)"]
    rows = [answered(7, restart) for restart in (0, 1)]
    front(live).mark({"jobs": rows}, None)
    assert [row["overrun"] for row in rows] == [None, {"held_mib": 30_000, "promised_mib": 5120}]
    for _ in range(2):
        live.take("n1", {"overruns": [OVER | {"until_s": 9.0, "held_mib": 31_000}]})
    assert len(story(running)) == 2 and "it held 30.3 GiB of 5.0 GiB at most" in story(running)[1]
    front(live).mark({"jobs": rows}, None)
    assert [row["overrun"] for row in rows] == [None, None]


def test_one_that_came_and_went_between_two_heartbeats(running: Store) -> None:
    Live(running).take("n1", {"overruns": [OVER | {"until_s": 9.0}]})
    assert len(story(running)) == 2


def test_an_agent_that_is_started_again(running: Store) -> None:
    """It begins anew, and so does what it tells; another node's heartbeat changes nothing."""
    live = Live(running)
    live.take("n1", {"overruns": [OVER]})
    live.take("n2", {"overruns": []})
    live.take("n1", {"overruns": [OVER]})
    assert len(story(running)) == 1
    live.take("n1", {"overruns": []})
    live.take("n1", {"overruns": [OVER | {"since_s": 8.0}]})
    assert len(story(running)) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"held_mib": -1},
        {"held_mib": 2**40},
        {"uuid": "\x1b[31m"},
        {"since_s": float("nan")},
        {"job_id": 0},
    ],
)
def test_what_is_malformed_is_left_out(running: Store, wrong: dict[str, Any]) -> None:
    live = Live(running)
    live.take("n1", {"overruns": [OVER | wrong]})
    live.take("n1", {"overruns": [OVER] * 65})
    assert story(running) == []


def test_a_run_that_the_agent_ended_did_it_itself(running: Store) -> None:
    """Also where the end of its GPU work looks like a fault of MPS in its log."""
    event = {"at_s": 98.0, "kind": "overrun", "state": "ended", "text": "the agent ends it"}
    mps = {"oom": False, "kind": "mps", "line": "the MPS client was terminated"}
    report = Report(
        exit_code=1,
        ended_s=100.0,
        evidence=mps,
        method="mps",
        used={"events": [event]},  # type: ignore[typeddict-item,arg-type]
    )
    outcome = judge_ended(JobView(7, "FAILED", exit_code=1), report)
    assert outcome is Outcome.OVERRUN
    ended = EndedRun(**asdict(run()) | {"end_s": 100.0, "share_mib": 5120})
    assert blamed(running, ended, outcome, report, [], 0) == Cause(Blame.SELF, "the agent ends it")


@pytest.mark.parametrize(
    ("promised", "uuids", "on", "found"),
    [
        (5120, ("GPU-1",), "GPU-1", 5120),
        (5120, ("GPU-1",), "GPU-2", 0),  # of a GPU that it does not have
        (0, ("GPU-1",), "GPU-1", None),  # the whole of it
        (0, ("GPU-1",), "GPU-2", 0),
        (None, ("GPU-1",), "GPU-1", None),  # colocd could not be asked
        (5120, (), "GPU-1", None),  # the Prolog did not learn its GPUs
    ],
)
def test_what_was_promised_of_a_gpu(
    promised: int | None, uuids: tuple[str, ...], on: str, found: int | None
) -> None:
    assert Job(7, 0, 1000, 1.0, uuids, "mps", promised).promised_on(on) == found
