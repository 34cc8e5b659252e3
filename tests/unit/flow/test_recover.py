# SPDX-License-Identifier: Apache-2.0
"""What recovery does when Slurm refuses or is away: nothing is left in a hold of ours.

The steps themselves run on real daemons (tests/cluster); a slurmctld that refuses for minutes does
not, so here a stand-in answers for it.
"""

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.adapters.store import Store
from slurm_coloc.core.records.lists import Recovery
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeShape
from slurm_coloc.core.slurm.job import JobView, Terms
from slurm_coloc.errors import SlurmError
from slurm_coloc.flow.recover.recover import Recoverer
from slurm_coloc.flow.recover.retry_limit import MAX_TRIES
from tests.unit.flow.contexts import context

MARK = "coloc:1:0123456789ab:collocate:fits:12"
FAILED = JobView(7, "FAILED", uid=1000, priority=10, tres_per_node="shard:12", admin_comment=MARK)


class Refusing:
    """A slurmctld that knows one job and refuses to change its gres with ``words``."""

    def __init__(self, words: str, code: str = "slurm-refused") -> None:
        self.view = FAILED
        self.words = words
        self.code = code

    async def job(self, job_id: int) -> JobView:
        return self.view

    async def requeue_hold(self, handle: str) -> None:
        self.view = replace(self.view, state="PENDING", restarts=1, priority=0)

    async def waiting_in_vain(self) -> list[JobView]:
        return []

    async def waiting(self) -> list[JobView]:
        return []

    async def set_gres(self, handle: str, tres: str) -> None:
        if self.words:
            raise SlurmError(self.words, self.code)
        self.view = replace(self.view, tres_per_node=tres)

    async def release(self, handle: str) -> None:
        self.view = replace(self.view, priority=10)

    async def update(self, handle: str, **fields: object) -> None:
        self.view = replace(self.view, priority=100_000)

    async def terms(self, handle: str) -> Terms:
        return Terms()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    found = Store.open(tmp_path)
    now = time.time()
    found.recoveries.add(
        Recovery(decision="0123456789ab", job_id=7, restart=0, uid=1000,
                 tres="gres/gpu:1", created_s=now, updated_s=now)
    )  # fmt: skip
    return found


def rounds(store: Store, slurm: Any, count: int) -> None:
    recoverer = Recoverer(context(store, slurm), lambda view: None)

    async def run() -> None:
        for _ in range(count):
            await recoverer.round()
            recoverer._pauses.clear()  # the pauses are tested below

    asyncio.run(run())


def test_a_refused_job_is_let_go_at_the_end(store: Store) -> None:
    slurm = Refusing("Invalid generic resource specification")
    rounds(store, slurm, MAX_TRIES - 1)
    assert slurm.view.held
    rounds(store, slurm, 1)
    assert not slurm.view.held
    assert store.recoveries.open() == []
    assert "given up" in store.events("0123456789ab", 7)[-1].text


def test_a_slurmctld_that_is_away_is_waited_for(store: Store) -> None:
    slurm = Refusing("squeue: no answer within 10 s", "slurm-away")
    rounds(store, slurm, 3 * MAX_TRIES)
    assert len(store.recoveries.open()) == 1
    slurm.words = ""
    rounds(store, slurm, 1)
    assert store.recoveries.open() == []
    assert (slurm.view.priority, slurm.view.tres_per_node) == (100_000, "gres/gpu:1")


def test_a_mark_that_an_admin_overwrote_does_not_leave_the_job_held(store: Store) -> None:
    slurm = Refusing("Invalid")
    rounds(store, slurm, 1)
    slurm.view = replace(slurm.view, admin_comment="ticket 7")
    slurm.words = ""
    rounds(store, slurm, 1)
    assert slurm.view.tres_per_node == "gres/gpu:1"
    assert not slurm.view.held


def test_a_failed_step_is_not_tried_again_at_once(store: Store) -> None:
    slurm = Refusing("Invalid")
    recoverer = Recoverer(context(store, slurm), lambda view: None)

    async def run() -> None:
        for _ in range(50):
            await recoverer.round()

    asyncio.run(run())
    assert store.recoveries.open()[0].tries == 1


def test_switched_off_begins_nothing_and_ends_what_it_began(store: Store) -> None:
    off = True
    slurm = Refusing("Invalid")
    recoverer = Recoverer(context(store, slurm, off=lambda: off), lambda view: None)
    asyncio.run(recoverer.round())
    assert slurm.view.state == "FAILED"
    off = False
    asyncio.run(recoverer.round())
    assert slurm.view.held
    off, slurm.words = True, ""
    recoverer._pauses.clear()
    asyncio.run(recoverer.round())
    assert not slurm.view.held


class Recording(Refusing):
    """A slurmctld that does what it is told and remembers it."""

    def __init__(self) -> None:
        super().__init__("")
        self.done: list[dict[str, object]] = []
        self.released = 0

    async def update(self, handle: str, **fields: object) -> None:
        self.done.append(fields)
        if isinstance(fields.get("Priority"), int):
            self.view = replace(self.view, priority=int(str(fields["Priority"])))

    async def release(self, handle: str) -> None:
        self.released += 1
        self.view = replace(self.view, priority=10)

    async def excluded(self, handle: str) -> str:
        return "n9"


def two_nodes() -> ClusterShape:
    nodes = tuple(NodeShape(name, ("main",), (), None, 1, 39) for name in ("n1", "n2"))
    return ClusterShape("c", (24, 11), nodes, ())


def test_a_victim_is_kept_from_its_node_for_a_while(store: Store) -> None:
    work = store.recoveries.open()[0]
    store.recoveries.change(
        work, cause="neighbour", way="same", tres="shard:12", avoid="n1", front=0
    )
    slurm = Recording()
    slurm.view = replace(slurm.view, partition="main")
    recoverer = Recoverer(context(store, slurm, shape=two_nodes()), lambda view: None)
    asyncio.run(recoverer.round())
    assert slurm.done[0] == {"ExcNodeList": "n9,n1"}
    assert "Priority" not in slurm.done[1], "it has the place that it had"
    assert store.recoveries.open() == []
    # The gate gives the node back, with what the owner had excluded.
    row = store.putbacks.open()[0]
    assert (row.node, row.was, row.excluded, row.delayed) == ("n1", "n9", 1, 1)


def test_where_no_other_node_could_take_it_it_may_go_back(store: Store) -> None:
    work = store.recoveries.open()[0]
    store.recoveries.change(
        work, cause="foreign", way="same", tres="shard:12", avoid="n1", front=False
    )
    slurm = Recording()
    rounds(store, slurm, 1)
    assert all("ExcNodeList" not in fields for fields in slurm.done)
    assert store.recoveries.open() == store.putbacks.open() == []
