# SPDX-License-Identifier: Apache-2.0
"""What agents say of their GPUs, as colocd keeps and shows it."""

import asyncio
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.adapters.store import Store
from slurm_coloc.cli import render
from slurm_coloc.core.peer import Peer
from slurm_coloc.core.records.runs import Run
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeShape
from slurm_coloc.flow.cluster.telemetry import Live
from slurm_coloc.flow.measure.thread import Worker
from slurm_coloc.flow.nodes.agents import Nodes
from slurm_coloc.flow.queries.figures import Figures

GPU = {
    "uuid": "GPU-1", "index": 0, "name": "NVIDIA A100", "total_mib": 40960, "free_mib": 30000,
    "smact": 0.25, "dram": 0.1, "pcie_rx_mib_s": 20.5, "power_w": 120.0,
    "jobs": [{"job_id": 7, "mib": 9000}], "foreign_mib": 0,
}  # fmt: skip


@pytest.fixture
def live(tmp_path: Path) -> Live:
    return Live(Store.open(tmp_path))


def shown(live: Live, *, hide_jobs: bool = False) -> dict[str, Any]:
    """What the front answers from what the main process sends it."""
    return front(live).answer(None if hide_jobs else {7: {"array_job_id": 5, "array_task": 2}})


def front(live: Live) -> Figures:
    figures = Figures()
    for message in live.figures(every=True):
        figures.take(json.loads(json.dumps(message)))
    return figures


def answered(job_id: int, restart: int, **changes: Any) -> dict[str, Any]:
    """What marks look at of a run in an answer."""
    row = {"job_id": job_id, "restart": restart, "uid": 1000, "state": "RUNNING"}
    return {**row, "time_left": None, **changes}


def test_the_last_figures_of_each_node(live: Live) -> None:
    live.take("n1", {"gpus": [GPU | {"free_mib": 1}]})
    live.take("n1", {"gpus": [GPU]})
    live.take("n2", {"gpus": [], "gpus_why": "NVML does not start: Driver Not Loaded"})
    told = shown(live)
    [row] = told["gpus"]
    assert row["node"] == "n1" and row["free_mib"] == 30000 and row["jobs"][0]["job_id"] == 7
    assert render.job(row["jobs"][0]) == "5_2"
    assert told["without"] == {"n2": "NVML does not start: Driver Not Loaded"}


def test_job_ids_are_private_where_slurm_says_so(live: Live) -> None:
    live.take("n1", {"gpus": [GPU]})
    told = shown(live, hide_jobs=True)
    assert told["private"] and told["gpus"][0]["jobs"] is None and told["gpus"][0]["jobs_here"] == 1


@pytest.mark.parametrize(
    "message",
    [
        {"gpus": [GPU | {"smact": float("nan")}]},
        {"gpus": [GPU | {"name": "\x1b[31m"}]},
        {"gpus": [GPU | {"free_mib": -1}]},
        {"gpus": [GPU] * 65},
        {"gpus": [GPU | {"jobs": [{"job_id": 1, "mib": 1}] * 49}]},
        {"gpus": "x"},
        {"gpus_why": "x" * 161},
    ],
)
def test_what_is_malformed_is_left_out(live: Live, message: dict[str, Any]) -> None:
    live.take("n1", message)
    assert shown(live)["gpus"] == []


def test_what_is_old_is_not_shown(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    live.take("n1", {"gpus": [GPU]})
    later = time.time() + 61
    monkeypatch.setattr(time, "time", lambda: later)
    assert shown(live)["gpus"] == []


def test_an_idle_run_is_marked(live: Live) -> None:
    live.take("n1", {"idle": [{"job_id": 7, "restart": 1, "since_s": 5.0, "held_mib": 9000}]})
    rows = [answered(7, restart) for restart in (0, 1)]
    marked = front(live).mark({"jobs": rows}, None)["jobs"]
    assert [row["idle_since_s"] for row in marked] == [None, 5.0]


TOLD = {
    "job_id": 7, "restart": 0, "at_s": 0.0, "done": 0.31, "left_s": 600.0, "low_s": 540.0,
    "high_s": 660.0, "epoch": 9.3, "epochs": 30.0,
}  # fmt: skip


@pytest.mark.parametrize("uid", [None, 1000, 1001])
def test_the_time_left_is_the_owners(live: Live, uid: int | None) -> None:
    live.take("n1", {"progress": [TOLD | {"at_s": time.time() - 60}]})
    rows = [answered(7, 0), answered(7, 1), answered(7, 0, state="COMPLETING")]
    marked = [row["time_left"] for row in front(live).mark({"jobs": rows}, uid)["jobs"]]
    assert marked[1:] == [None, None]
    if uid == 1001:
        assert marked[0] is None
        return
    assert marked[0]["by"] == "log" and marked[0]["epoch"] == 9.3
    assert marked[0]["left_s"] == pytest.approx(540, abs=5)  # of a minute ago
    assert marked[0]["low_s"] < marked[0]["left_s"] < marked[0]["high_s"]


def test_a_log_that_says_no_total_leaves_what_earlier_runs_say(live: Live) -> None:
    nothing = dict.fromkeys(("done", "left_s", "low_s", "high_s", "epochs"))
    live.take("n1", {"progress": [TOLD | nothing | {"at_s": time.time()}]})
    past = {"by": "earlier runs", "runs": 3, "left_s": 90.0, "low_s": 80.0, "high_s": 99.0}
    row = answered(7, 0, time_left={**past, "done": None, "epoch": None, "epochs": None})
    [marked] = front(live).mark({"jobs": [row]}, 1000)["jobs"]
    assert marked["time_left"] == {**past, "done": None, "epoch": 9.3, "epochs": None}


@pytest.mark.parametrize(
    "wrong", [{"left_s": -1.0}, {"left_s": 1e15}, {"left_s": "soon"}, {"done": 2.0}]
)
def test_a_time_that_is_none_is_refused(live: Live, wrong: dict[str, Any]) -> None:
    """It comes from a user's log: it costs his run its forecast, and the node nothing."""
    live.take("n1", {"gpus": [GPU], "progress": [TOLD | wrong, TOLD | {"job_id": 8}]})
    rows = front(live).mark({"jobs": [answered(7, 0), answered(8, 0)]}, None)["jobs"]
    assert rows[0]["time_left"] is None and rows[1]["time_left"] is not None
    assert len(shown(live)["gpus"]) == 1


def test_root_on_this_host_says_which_node_it_is(tmp_path: Path) -> None:
    """Only a node that Slurm knows."""
    shape = ClusterShape("c", (24, 11, 5), (NodeShape("n1", ("main",), (), "a100", 2, 78),))
    nodes = Nodes(lambda: shape, {0}, Store.open(tmp_path))
    nodes.hear(None, Peer(uid=0), {"node": "n1", "gpus": [GPU]})
    nodes.hear(None, Peer(uid=0), {"node": "n9", "gpus": [GPU]})
    nodes.hear(None, Peer(uid=0), {"node": ["n1"], "gpus": [GPU]})
    assert [row["node"] for row in shown(nodes.live)["gpus"]] == ["n1"]
    assert [link["linked"] for link in nodes.links()] == [True]


def test_a_call_that_hangs_stops_nothing_else() -> None:
    """The driver does not answer: refused at once until it does, then it goes on."""
    release = threading.Event()

    async def run() -> None:
        worker = Worker("test")
        with pytest.raises(TimeoutError):
            await worker.call(release.wait, 0.05)
        with pytest.raises(TimeoutError, match="has not returned"):
            await worker.call(lambda: 1, 5)
        release.set()
        for _ in range(500):
            try:
                assert await worker.call(lambda: 2, 5) == 2
                break
            except TimeoutError:
                await asyncio.sleep(0.01)
        else:
            pytest.fail("it did not come back")
        with pytest.raises(ZeroDivisionError):
            await worker.call(lambda: 1 // 0, 5)

    asyncio.run(run())


def test_runs_that_ended_long_ago_are_told(tmp_path: Path) -> None:
    """Their Epilog will not come: by id, restart and the Prolog's time, since ids start again."""
    now = time.time()

    store = Store.open(tmp_path)
    store.runs._db.execute("PRAGMA foreign_keys = OFF")
    for job_id, ended in ((7, now - 700), (8, now - 30), (9, None)):
        outcome = "completed" if ended else None
        store.runs.add(
            Run(decision="x", job_id=job_id, restart=0, uid=1, state="RUNNING", outcome=outcome,
                end_s=ended)
        )  # fmt: skip

    shape = ClusterShape("c", (24, 11, 5), (NodeShape("n1", ("main",), (), "a100", 2, 78),))
    nodes = Nodes(lambda: shape, {0}, store)
    began = now - 5000
    runs = [[7, 0, began], [8, 0, began], [9, 0, began], [7, 1, began], [7, 0, now - 100], "x"]
    answer = nodes.hear("n1", Peer(uid=0, remote=True), {"gpus": [], "runs": runs})
    assert answer == {"gone": [7], "private": False}
    assert nodes.hear("n1", Peer(uid=0, remote=True), {"runs": {"a": 1}}) == {"private": False}


@pytest.mark.parametrize(
    ("private", "hidden"), [((), False), (("nodes",), False), (("jobs",), True), (("users",), True)]
)
def test_an_agent_is_told_whether_names_are_hidden(
    tmp_path: Path, private: tuple[str, ...], hidden: bool
) -> None:
    node = NodeShape("n1", ("main",), (), "a100", 2, 78)
    shape = ClusterShape("c", (24, 11, 5), (node,), private_data=frozenset(private))
    nodes = Nodes(lambda: shape, {0}, Store.open(tmp_path))
    assert nodes.hear("n1", Peer(uid=0, remote=True), {})["private"] is hidden


def test_names_are_hidden_while_the_cluster_is_not_known(tmp_path: Path) -> None:
    nodes = Nodes(lambda: None, {0}, Store.open(tmp_path))
    assert nodes.hear("n1", Peer(uid=0, remote=True), {})["private"] is True
