# SPDX-License-Identifier: Apache-2.0
"""Putting a job back when slurmctld refuses, is away, or colocd dies between two steps.

On real daemons: tests/cluster/test_gate.py. A slurmctld that refuses on demand is a stand-in here.
"""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.adapters.store import Store
from slurm_coloc.config import Config, GateConfig, parse_config
from slurm_coloc.core.records.runs import Run
from slurm_coloc.core.recover.fitness import GpuNow, GpuProcess
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeShape
from slurm_coloc.core.slurm.job import REQUEUED_HELD, JobView
from slurm_coloc.errors import SlurmError
from slurm_coloc.flow.nodes import unfit_gpu as flow
from slurm_coloc.flow.nodes.unfit_gpu import Gate
from slurm_coloc.flow.recover.alternative_nodes import excluded_before
from slurm_coloc.flow.recover.retry_limit import MAX_TRIES
from slurm_coloc.flow.watch.adopt import adopt
from tests.unit.flow.contexts import context

ID = "0123456789ab"
VIEW = JobView(
    7, "RUNNING", uid=1000, tres_per_node="gres/shard:12", partition="gpu", nodes="n1",
    admin_comment=f"coloc:1:{ID}:collocate:fits:12", requeue=True, batch=True,
)  # fmt: skip
NODE = NodeShape("n1", ("gpu",), (), None, 2, 78)
ALONE = ClusterShape("c", (24, 11, 5), (NODE,))
TWO = replace(ALONE, nodes=(NODE, replace(NODE, name="n2")))
FULL = [GpuNow("GPU-1", 40536, 100)]


class Slurm:
    """One job; ``refuse``: words for each order that is refused."""

    def __init__(self, view: JobView = VIEW, excluded: str = "", **refuse: str) -> None:
        self.view = view
        self.list = excluded
        self.refuse = refuse
        self.orders: list[str] = []

    def _order(self, name: str, text: str = "") -> None:
        self.orders.append(f"{name}{text}")
        if words := self.refuse.get(name):
            raise SlurmError(words, "slurm-away" if words == "away" else "slurm-refused")

    async def job(self, job_id: int) -> JobView:
        return self.view

    async def excluded(self, handle: str) -> str:
        return self.list

    async def requeue_hold(self, handle: str) -> None:
        self._order("requeue")
        self.view = replace(
            self.view, state="PENDING", restarts=1, priority=0, reason=REQUEUED_HELD, nodes=""
        )

    async def set_gres(self, handle: str, tres: str) -> None:
        self._order("gres", f"={tres}")
        self.view = replace(self.view, tres_per_node=tres)

    async def release(self, handle: str) -> None:
        self._order("release")
        self.view = replace(self.view, priority=9, reason="Priority")

    async def update(self, handle: str, **fields: Any) -> None:
        for name, value in fields.items():
            self._order(name, f"={value}")
            if name == "ExcNodeList":
                self.list = value
            if name == "Priority":
                self.view = replace(self.view, priority=value)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    found = Store.open(tmp_path)
    adopt(Config(), found, ALONE, VIEW)
    return found


def judge(store: Store, slurm: Any, shape: ClusterShape = ALONE, **more: Any) -> Any:
    """The answer of a last look at a full GPU, and what is done about it."""
    last = more.pop("last", True)
    off = more.pop("off", False)
    view = more.pop("view", VIEW)
    gate = Gate(
        context(store, slurm, Config(gate=GateConfig(**more)), off=lambda: off, shape=shape),
        lambda view: None,
    )
    decision = store.decisions.of(ID)
    assert decision is not None
    return asyncio.run(gate.judge(view, decision, "n1", FULL, 12288, last=last))


def go_on(store: Store, slurm: Any, **more: Any) -> None:
    """A round by a colocd that knows nothing but its database."""
    gate = Gate(
        context(store, slurm, Config(gate=GateConfig(**more)), shape=TWO), lambda view: None
    )
    asyncio.run(gate.round())


def test_it_waits_for_its_only_node(store: Store) -> None:
    slurm = Slurm()
    assert judge(store, slurm, last=False) == {"back": False, "why": judge(store, slurm)["why"]}
    go_on(store, slurm)
    assert slurm.orders == ["requeue", "StartTime=now+60", "release"]
    row = store.putbacks.of(ID, 7, 0)
    assert row is not None and row.state == "done"


def test_it_has_its_place_again(store: Store) -> None:
    """A requeue takes its age; it was no fault of its own."""
    slurm = Slurm(replace(VIEW, priority=17_388))
    assert judge(store, slurm, view=slurm.view)["back"]
    go_on(store, slurm)
    assert slurm.orders == ["requeue", "StartTime=now+60", "release", "Priority=17388"]
    assert store.putbacks.open() == []


def test_it_goes_elsewhere_and_may_come_back(store: Store) -> None:
    slurm = Slurm(excluded="x[1-3]")
    assert judge(store, slurm, TWO)["back"]
    go_on(store, slurm)
    assert slurm.orders == ["requeue", "ExcNodeList=x[1-3],n1", "StartTime=now+5", "release"]
    go_on(store, slurm)
    assert len(slurm.orders) == 4  # not yet
    go_on(store, slurm, exclude_s=0)
    assert slurm.list == "x[1-3]"
    assert store.putbacks.open() == []


def test_a_node_excluded_before_is_not_taken_for_its_owner_s(store: Store) -> None:
    """It started elsewhere in time, so the list still names the node when it is put back again."""
    slurm = Slurm(excluded="x1")
    assert judge(store, slurm, TWO)["back"]
    go_on(store, slurm)
    assert slurm.list == "x1,n1"
    slurm.view = replace(slurm.view, state="RUNNING", nodes="n2", priority=9, reason="")
    go_on(store, slurm, exclude_s=0)
    assert slurm.list == "x1,n1", "no list of a job that runs is changed"
    found = asyncio.run(excluded_before(context(store, slurm, shape=TWO), slurm.view, "n2"))
    assert found == "x1"


def test_a_node_is_given_back_in_a_later_run_too(store: Store) -> None:
    """It started elsewhere in time, and waits again: preempted, or at its time slot's end."""
    slurm = Slurm(excluded="x1")
    assert judge(store, slurm, TWO)["back"]
    go_on(store, slurm)
    waits = slurm.view
    seen: list[JobView] = []
    slurm.view = replace(waits, state="RUNNING", nodes="n2", priority=9, reason="")
    gate = Gate(context(store, slurm, shape=TWO), seen.append)
    asyncio.run(gate.round())
    assert [view.state for view in seen] == ["RUNNING"], "its run is followed"
    slurm.view = replace(waits, restarts=2, priority=9, reason="Priority")
    go_on(store, slurm, exclude_s=0)
    assert slurm.list == "x1" and store.putbacks.open() == []


def test_a_node_excluded_twice_is_given_back_once(store: Store) -> None:
    """The second time it was put back there after the first exclusion's end."""
    slurm = Slurm(excluded="x1")
    assert judge(store, slurm, TWO)["back"]
    go_on(store, slurm)
    first = store.putbacks.open()[0]
    again = replace(first, restart=2, created_s=first.created_s + 1800)
    store.putbacks.add(again)
    slurm.view = replace(slurm.view, restarts=3)
    store.putbacks.change(first, created_s=first.created_s - 7200)
    go_on(store, slurm)
    assert slurm.list == "x1,n1"
    assert [row.restart for row in store.putbacks.open()] == [2]


def test_a_node_that_must_not_be_excluded_is_waited_for(store: Store) -> None:
    slurm = Slurm(ExcNodeList="Requested node configuration is not available")
    judge(store, slurm, TWO)
    go_on(store, slurm)
    assert slurm.orders[-2:] == ["StartTime=now+60", "release"]
    assert not slurm.view.held


@pytest.mark.parametrize(
    ("slurm", "more", "why"),
    [
        (Slurm(requeue="Job is not requeueable"), {}, "not requeueable"),
        (Slurm(), {"max_per_job": 0}, "put back 0 times"),
        (Slurm(), {"off": True}, "switched off"),
    ],
)
def test_what_is_not_put_back_starts(
    store: Store, slurm: Slurm, more: dict[str, Any], why: str
) -> None:
    assert judge(store, slurm, **more)["back"] is False
    assert why in store.events(ID, 7)[-1].text
    go_on(store, slurm)
    assert slurm.orders in ([], ["requeue"]) and store.putbacks.open() == []
    assert judge(store, slurm, **more)["back"] is False  # its Prolog again


def test_an_owner_who_wants_no_requeue(store: Store) -> None:
    decision = store.decisions.of(ID)
    assert decision is not None
    gate = Gate(context(store, Slurm(), shape=TWO), lambda view: None)
    for view in (replace(VIEW, requeue=False), replace(VIEW, batch=False)):
        found = asyncio.run(gate.judge(view, decision, "n1", FULL, 12288, last=True))
        assert found is not None and not found["back"]


@pytest.mark.parametrize(("mode", "action"), [("observe", "collocate"), ("on", "asis")])
def test_jobs_that_are_not_ours_to_judge(store: Store, mode: str, action: str) -> None:
    gate = Gate(context(store, Slurm(), shape=TWO), lambda view: None)
    stored = store.decisions.of(ID)
    assert stored is not None
    decision = replace(stored, mode=mode, action=action)
    assert asyncio.run(gate.judge(VIEW, decision, "n1", FULL, 12288, last=True)) is None


def test_an_order_without_an_answer(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = Slurm(requeue="away")
    assert judge(store, slurm)["back"] is False
    go_on(store, slurm)  # it runs: perhaps the order comes yet
    assert len(store.putbacks.open()) == 1
    slurm.refuse = {}
    asyncio.run(slurm.requeue_hold("7"))  # it does
    go_on(store, slurm)
    assert not slurm.view.held and store.putbacks.open() == []


def test_an_order_that_never_came(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = Slurm(requeue="away")
    judge(store, slurm)
    monkeypatch.setattr(flow, "ORDER_S", 0.0)
    go_on(store, slurm)
    assert store.putbacks.open() == [] and slurm.orders == ["requeue"]


def test_nothing_stays_in_our_hold(store: Store) -> None:
    slurm = Slurm(StartTime="refused")
    judge(store, slurm)
    for _ in range(MAX_TRIES):
        assert slurm.view.held
        go_on(store, slurm)
    assert not slurm.view.held and store.putbacks.open() == []


FREE = [replace(FULL[0], free_mib=FULL[0].total_mib, holders=())]


@pytest.mark.parametrize(
    ("required", "unfenced", "need_mib", "back"),
    [
        (True, "another user has MPS on this GPU", 12288, True),
        (True, "", 12288, False),
        (True, "the job has several GPUs here", None, False),  # a whole GPU needs no fence
        (False, "another user has MPS on this GPU", 12288, False),
    ],
)
def test_a_share_that_nothing_would_hold(
    store: Store, required: bool, unfenced: str, need_mib: int | None, back: bool
) -> None:
    config = GateConfig(require_fence=required)
    gate = Gate(context(store, Slurm(), Config(gate=config), shape=TWO), lambda view: None)
    decision = store.decisions.of(ID)
    assert decision is not None
    found = asyncio.run(
        gate.judge(VIEW, decision, "n1", FREE, need_mib, last=True, unfenced=unfenced)
    )
    assert (found is not None and found["back"]) is back
    assert found is None or "nothing would hold its memory: another user" in found["why"]


def test_a_job_that_waits_elsewhere_is_seldom_looked_at(store: Store) -> None:
    slurm = Slurm()
    judge(store, slurm, TWO)
    asked = 0

    async def job(job_id: int) -> JobView:
        nonlocal asked
        asked += 1
        return slurm.view

    slurm.job = job  # type: ignore[method-assign]
    gate = Gate(context(store, slurm, shape=TWO), lambda view: None)

    async def rounds(count: int) -> None:
        for _ in range(count):
            await gate.round()

    asyncio.run(rounds(1))
    steps, store_open = asked, len(store.putbacks.open())
    asyncio.run(rounds(10))
    assert store_open == 1 and asked == steps


# Another user's job on the GPU.

OTHER = replace(VIEW, job_id=8, uid=1001, account="b", admin_comment=VIEW.admin_comment)


class TwoJobs(Slurm):
    """The job that begins, and one that is there."""

    def __init__(self, other: JobView) -> None:
        super().__init__(replace(VIEW, account="a"))
        self.other = other

    async def job(self, job_id: int) -> JobView:
        return self.view if job_id == self.view.job_id else self.other


def meets(store: Store, other: JobView, *holders: GpuProcess, **sharing: str) -> Any:
    """The last look at a GPU with room, on which our records have ``other``."""
    slurm = TwoJobs(other)
    store.runs.see(Run(ID, other.job_id, 0, uid=other.uid, state="RUNNING"))
    store.runs.launched(ID, other.job_id, 0, ["GPU-1"])
    config = parse_config({"sharing": sharing}, "test")
    gate = Gate(context(store, slurm, config, shape=ALONE), lambda view: None)
    decision = store.decisions.of(ID)
    assert decision is not None
    free = [replace(FREE[0], holders=holders)]
    return asyncio.run(gate.judge(slurm.view, decision, "n1", free, 12288, last=True))


def test_a_share_beside_another_user_s_is_put_back(store: Store) -> None:
    found = meets(store, OTHER)
    assert found["back"]
    assert found["why"] == 'a job of another user runs there (sharing.with = "user")'
    assert "put back into the queue" in store.events(ID, 7)[-1].text


def test_then_it_asks_for_a_gpu_of_its_own(store: Store) -> None:
    """Natively Slurm would put it beside the other again; steered it gets a pin."""
    meets(store, OTHER)
    slurm = Slurm(replace(VIEW, state="PENDING", restarts=1, priority=0, reason=REQUEUED_HELD))
    go_on(store, slurm)
    assert slurm.orders == ["gres=gres/gpu:1", "StartTime=now+60", "release"]
    assert "asks for a whole GPU now" in store.events(ID, 7)[-1].text


def test_steered_it_stays_a_share(store: Store) -> None:
    meets(store, OTHER)
    slurm = Slurm(replace(VIEW, state="PENDING", restarts=1, priority=0, reason=REQUEUED_HELD))
    config = parse_config({"placement": {"mode": "steered"}}, "test")
    asyncio.run(Gate(context(store, slurm, config, shape=TWO), lambda view: None).round())
    assert not any(order.startswith("gres=") for order in slurm.orders)


@pytest.mark.parametrize(
    ("other", "sharing"),
    [
        (replace(OTHER, uid=VIEW.uid), {}),
        (replace(OTHER, state="COMPLETED"), {}),
        (replace(OTHER, state="PENDING"), {}),
        (replace(OTHER, completing=True), {}),
        (OTHER, {"with": "anyone"}),
        (replace(OTHER, account="a"), {"with": "account"}),
    ],
)
def test_who_may_meet_or_has_gone(store: Store, other: JobView, sharing: dict[str, str]) -> None:
    assert meets(store, other, **sharing) is None


def test_another_account_may_not(store: Store) -> None:
    found = meets(store, OTHER, **{"with": "account"})
    assert "of another account" in found["why"]


def test_a_share_without_coloc_is_seen_by_its_process(store: Store) -> None:
    """No run of ours: the node tells whose process is there."""
    process = GpuProcess(99, 500, job_id=8, uid=1001)
    slurm = TwoJobs(replace(OTHER, admin_comment=""))
    gate = Gate(context(store, slurm, shape=ALONE), lambda view: None)
    decision = store.decisions.of(ID)
    assert decision is not None
    there = [replace(FREE[0], holders=(process,))]
    found = asyncio.run(gate.judge(slurm.view, decision, "n1", there, 12288, last=True))
    assert found is not None and found["back"]
    whole = asyncio.run(gate.judge(slurm.view, decision, "n1", there, None, last=True))
    assert whole is None or "another user" not in whole["why"]
