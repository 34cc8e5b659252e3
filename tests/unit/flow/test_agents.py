# SPDX-License-Identifier: Apache-2.0
"""A node speaks only for itself, and only of runs that were there."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.adapters.store import Store
from slurm_coloc.config import Config
from slurm_coloc.core.peer import Peer
from slurm_coloc.core.records.runs import Run
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeShape
from slurm_coloc.core.slurm.job import JobView, decision_in
from slurm_coloc.errors import ColocError, SlurmError, UsageFault
from slurm_coloc.flow.nodes.agents import Nodes
from slurm_coloc.flow.nodes.job_questions import JobQuestions
from slurm_coloc.flow.nodes.prolog import launched, read_launch
from slurm_coloc.flow.nodes.unfit_gpu import Gate
from slurm_coloc.flow.watch.adopt import adopt, exclusive_tres
from tests.unit.flow.contexts import context

MARK = "site; coloc:1:0123456789ab:collocate:fits:12"
VIEW = JobView(
    7, "RUNNING", uid=1000, tres_per_node="gres/shard:12,gres/tape:1", admin_comment=MARK,
    partition="main", nodes="gpu[01-02]", batch_host="gpu01", requeue=True, batch=True,
    submit_s=1000.0,
)  # fmt: skip


def node(name: str, address: str) -> NodeShape:
    return NodeShape(name, ("main",), (), "a100", 2, 78, address=address, hostname=address)


SHAPE = ClusterShape(
    "c",
    (24, 11, 5),
    (node("gpu01", "192.0.2.1"), node("gpu02", "192.0.2.2"), node("here", "127.0.0.1")),
)


class Slurm:
    """A slurmctld that knows one job, or is away."""

    def __init__(self, view: JobView | None = VIEW) -> None:
        self.view, self.away = view, False

    async def job(self, job_id: int) -> JobView | None:
        if self.away:
            raise SlurmError("away")
        return self.view


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path)


def speaker(store: Store, shape: ClusterShape | None = SHAPE, **of: Any) -> str:
    peer = Peer(**({"uid": 0, "remote": True, "address": "192.0.2.1", "node": "gpu01"} | of))

    async def ask() -> str:
        return await Nodes(lambda: shape, {0, 64030}, store).speaker(peer)

    return asyncio.run(ask())


def test_who_may_speak(store: Store) -> None:
    assert speaker(store) == "gpu01"
    assert speaker(store, uid=64030, cluster="c") == "gpu01"
    assert speaker(store, address="::ffff:192.0.2.1") == "gpu01"
    # On colocd's own host any of its addresses is the node's.
    assert speaker(store, address="127.0.0.1", node="here") == "here"


@pytest.mark.parametrize(
    "of",
    [
        {"uid": 1000},
        {"node": None},
        {"node": "gpu02"},
        {"node": "login"},
        {"address": "192.0.2.9"},
        {"address": "127.0.0.1"},
        {"cluster": "other"},
    ],
    ids=str,
)
def test_who_may_not(store: Store, of: dict[str, Any]) -> None:
    with pytest.raises(UsageFault) as caught:
        speaker(store, **of)
    assert caught.value.code == "not-allowed"


def test_before_the_cluster_is_known(store: Store) -> None:
    with pytest.raises(ColocError) as caught:
        speaker(store, None)
    assert caught.value.code == "not-now"


def require(store: Store, slurm: Any, restart: int, name: str) -> None:
    async def ask() -> None:
        await Nodes(lambda: SHAPE, {0}, store).require_run(JobQuestions(slurm), 7, restart, name)

    asyncio.run(ask())


def test_only_runs_that_were_there(store: Store) -> None:
    require(store, Slurm(), 0, "gpu01")
    require(store, Slurm(), 0, "gpu02")
    # Requeued while its Epilog still runs: the count is the next run's already.
    require(store, Slurm(replace(VIEW, restarts=1, completing=True)), 0, "gpu02")
    for view, restart, name in (
        (VIEW, 0, "gpu03"),
        (VIEW, 1, "gpu01"),
        (replace(VIEW, restarts=1), 0, "gpu01"),
        (replace(VIEW, nodes="", batch_host=""), 0, "gpu01"),
        (None, 0, "gpu01"),
    ):
        with pytest.raises(UsageFault) as caught:
            require(store, Slurm(view), restart, name)
        assert caught.value.code == "not-yours"


def test_a_run_that_was_seen_there_needs_no_slurm(store: Store) -> None:
    slurm = Slurm()
    slurm.away = True
    with pytest.raises(SlurmError):
        require(store, slurm, 0, "gpu01")
    assert adopt(Config(), store, SHAPE, VIEW)
    store.runs.see(
        Run(decision="0123456789ab", job_id=7, restart=0, uid=1000, submit_s=1.0,
            state="RUNNING", node="gpu[01-02]", tres="gres/shard:12", start_s=2.0)
    )  # fmt: skip
    require(store, slurm, 0, "gpu02")


def test_adopted_from_its_mark(store: Store) -> None:
    assert not adopt(Config(), store, None, VIEW)
    assert not adopt(Config(), store, SHAPE, replace(VIEW, admin_comment="site"))
    nobodys = "coloc:1:000000000000:exclusive:breaker:0"  # of every job while colocd was away
    assert not adopt(Config(), store, SHAPE, replace(VIEW, admin_comment=nobodys))
    assert decision_in(nobodys) is None
    assert adopt(Config(), store, SHAPE, VIEW)
    row = store.decisions.of("0123456789ab")
    assert row is not None
    kept = ("action", "reason", "shards", "uid", "may_requeue", "shards_per_gpu", "exclusive_tres")
    assert [getattr(row, name) for name in kept] == [
        *("collocate", "fits", 12, 1000, 1, 39, "gres/gpu:1,gres/tape:1")
    ]


@pytest.mark.parametrize(
    ("tres", "release", "exclusive"),
    [
        ("gres/shard:12", (24, 11, 5), "gres/gpu:1"),
        ("gres:shard:12", (22, 5, 8), "gres/shard:39"),
        ("gres/shard:a100:12", (24, 11, 5), "gres/gpu:a100:1"),
        ("gres/gpu:1", (24, 11, 5), "gres/gpu:1"),
        ("", (24, 11, 5), ""),
    ],
)
def test_a_whole_gpu_for_an_adopted_job(
    tres: str, release: tuple[int, ...], exclusive: str
) -> None:
    view = replace(VIEW, tres_per_node=tres)
    assert exclusive_tres(view, replace(SHAPE, release=release), 39) == exclusive


@pytest.mark.parametrize(
    ("per_task", "exclusive"),
    [
        ("gres/shard:12", "per-task:gres/gpu:1"),
        ("gres/shard:a100:12,cpu=3", "per-task:gres/gpu:a100:1,cpu=3"),
        ("gres/gpu:1", "per-task:gres/gpu:1"),
        ("cpu=3", ""),
    ],
)
def test_an_adopted_job_of_shards_per_task_is_recovered(
    store: Store, per_task: str, exclusive: str
) -> None:
    view = replace(VIEW, tres_per_node="", tres_per_task=per_task)
    assert adopt(Config(), store, SHAPE, view)
    row = store.decisions.of("0123456789ab")
    assert row is not None
    assert (row.exclusive_tres, row.may_requeue) == (exclusive, int(bool(exclusive)))


def test_launched_keeps_the_gpus_and_tells_the_share(store: Store) -> None:
    adopt(Config(), store, SHAPE, VIEW)

    def see(view: JobView) -> None:
        store.runs.see(
            Run(decision="0123456789ab", job_id=7, restart=0, uid=1000, submit_s=1.0,
                state=view.state, node=view.nodes, tres=view.tres_per_node, start_s=2.0)
        )  # fmt: skip

    def ask(name: str, uuid: str, slurm: Any) -> Any:
        gpus = [{"uuid": uuid, "minor": 0, "free_mib": 40000}]
        body = {"v": 1, "job_id": 7, "restart": 0, "node": name, "gpus": gpus}
        gate = Gate(context(store, slurm, shape=SHAPE), see)
        view = asyncio.run(slurm.job(7))
        return asyncio.run(launched(store, view, see, gate, read_launch(body)))["reservation"]

    found = ask("gpu01", "GPU-1", Slurm())
    assert (found["decision"], found["action"]) == ("0123456789ab", "collocate")
    assert (found["shards"], found["shard_mib"], found["upper_mib"]) == (12, 1024, None)
    ask("gpu02", "GPU-2", Slurm())
    ask("gpu02", "GPU-2", Slurm())  # a Prolog may run twice
    assert store.runs.of_job(7)[0].gpu_uuids == ("GPU-1", "GPU-2")
    story = [line.text for line in store.events("0123456789ab", 7) if line.kind == "launch"]
    assert len(story) == 2 and "40000 MiB free" in story[0]
    whole = Slurm(replace(VIEW, tres_per_node="gres/gpu:1,gres/tape:1"))
    found = ask("gpu01", "GPU-1", whole)
    assert (found["action"], found["shards"]) == ("exclusive", 0)
    for view in (None, replace(VIEW, restarts=1), replace(VIEW, admin_comment="")):
        assert ask("gpu01", "GPU-1", Slurm(view)) is None
    with pytest.raises(UsageFault, match=r"launch: gpus\.0\.uuid"):
        ask("gpu01", "GPU 1\n", Slurm())
