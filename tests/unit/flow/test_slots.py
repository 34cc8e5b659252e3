# SPDX-License-Identifier: Apache-2.0
"""Time slots when slurmctld refuses, is away, or colocd dies between two steps.

On real daemons: tests/cluster/test_slots.py. A slurmctld that refuses on demand is a stand-in here.
"""

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.adapters.store import Store
from slurm_coloc.config import Config, SlotConfig, SlowdownConfig
from slurm_coloc.core.records.lists import Recovery, SlottedJob
from slurm_coloc.core.records.runs import Run
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeShape
from slurm_coloc.core.slurm.job import JobView, Terms
from slurm_coloc.errors import SlurmError
from slurm_coloc.flow.time.slots import MAX_TRIES, Slots
from slurm_coloc.flow.watch.adopt import adopt
from tests.unit.flow.contexts import context

ID = "0123456789ab"
SHAPE = ClusterShape("c", (24, 11, 5), (NodeShape("n1", ("gpu",), (), None, 2, 78),))
VIEW = JobView(
    7, "RUNNING", uid=1000, tres_per_node="gres/shard:12", partition="gpu", nodes="n1",
    admin_comment=f"coloc:1:{ID}:collocate:fits:12", requeue=True, batch=True,
)  # fmt: skip


class Slurm:
    """One job; ``refuse``: words for each order that is refused."""

    def __init__(self, view: JobView, limit_s: float | None = 86400.0) -> None:
        self.view = view
        self.limit_s = limit_s
        self.refuse: dict[str, str] = {}
        self.orders: list[str] = []
        self.said = ""  # its Comment

    def _order(self, text: str) -> None:
        self.orders.append(text)
        if words := self.refuse.get(text.split(" ")[0]):
            raise SlurmError(words, "slurm-away" if words == "away" else "slurm-refused")

    async def job(self, job_id: int) -> JobView:
        return self.view

    async def terms(self, handle: str) -> Terms:
        return Terms(4, self.limit_s, comment=self.said)

    async def signal(self, handle: str, name: str) -> None:
        self._order(f"signal {name}")

    async def notify(self, handle: str, text: str) -> None:
        self._order("notify")

    async def cancel(self, handle: str) -> None:
        self._order("cancel")

    async def requeue(self, handle: str) -> None:
        self._order("requeue")
        self.again()

    async def update(self, handle: str, **fields: Any) -> None:
        self._order("update " + " ".join(f"{name}={value}" for name, value in fields.items()))

    def again(self) -> None:
        self.view = replace(
            self.view, state="PENDING", restarts=self.view.restarts + 1, completing=False
        )


def opened(folder: Path) -> Store:
    found = Store.open(folder)
    adopt(Config(), found, SHAPE, VIEW)
    found._db.execute("UPDATE decisions SET slot = '3600,120,URG'")
    see(found, VIEW)
    return found


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return opened(tmp_path)


def see(store: Store, view: JobView, **more: Any) -> None:
    store.runs.see(
        Run(
            decision=ID, job_id=7, restart=view.restarts, uid=1000, submit_s=1.0,
            state=view.state, node="n1", tres=view.tres, start_s=view.start_s,
        )
    )  # fmt: skip
    for name, value in more.items():
        sql = f"UPDATE runs SET {name} = ? WHERE restart = ?"
        store._db.execute(sql, (value, view.restarts))


def go_on(
    store: Store,
    slurm: Slurm,
    *,
    off: bool = False,
    rounds: int = 1,
    slowdown: SlowdownConfig | None = None,
    **settings: Any,
) -> None:
    """Rounds by a colocd that knows nothing but its database."""
    for _ in range(rounds):
        config = Config(slots=SlotConfig(**settings), slowdown=slowdown or SlowdownConfig())
        slots = Slots(context(store, slurm, config, off=lambda: off), slurm.job)
        asyncio.run(slots.round())


def row(store: Store) -> SlottedJob:
    found = store.slots.of(ID, 7)
    assert found is not None
    return found


def running(age_s: float) -> Slurm:
    return Slurm(replace(VIEW, start_s=time.time() - age_s))


def test_nothing_before_it_is_due(store: Store) -> None:
    slurm = running(100)
    go_on(store, slurm)
    assert slurm.orders == [] and (row(store).total_s, row(store).nice) == (86400.0, 4)


def test_one_signal_however_often_colocd_dies(store: Store) -> None:
    slurm = running(3490)
    go_on(store, slurm, rounds=3)
    assert slurm.orders == ["signal URG"]


def test_a_signal_that_got_no_answer_is_not_sent_twice(store: Store) -> None:
    """It may have come: a second would meet a program that saves."""
    slurm = running(3490)
    slurm.refuse["signal"] = "away"
    go_on(store, slurm, rounds=2)
    assert slurm.orders == ["signal URG"] and row(store).tries == 0


def test_switched_off_nothing_new_is_begun(store: Store) -> None:
    slurm = running(3490)
    go_on(store, slurm, off=True)
    assert slurm.orders == []


def test_one_that_stays_is_let_run_and_told(store: Store) -> None:
    slurm = running(9000)
    go_on(store, slurm)
    store.slots.change(row(store), signalled_s=time.time() - 500)
    go_on(store, slurm, rounds=2)
    assert slurm.orders == ["signal URG", "notify"] and row(store).state == "dropped"


@pytest.mark.parametrize(
    ("cut", "said_s", "put_back"),
    [("saved", 10, True), ("saved", -600, False), ("saved", None, False), ("always", None, True),
     ("never", 10, False)],
)  # fmt: skip
def test_one_that_saved_and_stays_is_put_back(
    store: Store, cut: str, said_s: int | None, put_back: bool
) -> None:
    slurm = running(9000)
    go_on(store, slurm)
    told_s = time.time() - 500
    if said_s is not None:
        slurm.said = f"mine; coloc: saved {told_s + said_s:.0f}"
    store.slots.change(row(store), signalled_s=told_s)
    go_on(store, slurm, cut=cut)
    if not put_back:
        assert slurm.orders == ["signal URG", "notify"] and row(store).state == "dropped"
        return
    # It is back in the queue, its time is counted as a slot's, others go first.
    assert slurm.orders[:3] == ["signal URG", "notify", "requeue"]
    assert slurm.orders[3].startswith("update Nice=5") and row(store).used_s >= 3600


def test_the_next_slot_has_what_is_left_behind_others(store: Store) -> None:
    slurm = running(3500)
    go_on(store, slurm)
    see(store, slurm.view, start_s=time.time() - 3600, end_s=time.time(), open=0, outcome="slot")
    slurm.again()
    go_on(store, slurm, rounds=2)
    assert slurm.orders[1:] == ["update Nice=5 TimeLimit=1380 StartTime=now+5"]
    assert row(store).used_s == pytest.approx(3600, abs=2) and row(store).restart == 1
    store.slots.change(row(store), behind_s=time.time() - 4000)
    go_on(store, slurm, rounds=2)
    assert slurm.orders[2:] == ["update Nice=4"]


def test_its_owners_requeue_is_his(store: Store) -> None:
    slurm = running(600)
    go_on(store, slurm)
    ended = {"open": 0, "outcome": "requeued", "end_s": time.time(), "start_s": time.time() - 600}
    see(store, slurm.view, **ended)
    slurm.again()
    go_on(store, slurm)
    assert slurm.orders == [] and row(store).used_s == 0


def test_all_of_its_time_is_used(store: Store) -> None:
    slurm = running(3500)
    go_on(store, slurm)
    store.slots.change(row(store), used_s=86000.0)
    slurm.limit_s = 420.0  # by the slots
    see(store, slurm.view, start_s=time.time() - 3600, end_s=time.time(), open=0, outcome="slot")
    slurm.again()
    go_on(store, slurm)
    assert slurm.orders[1:] == ["cancel"] and row(store).state == "done"


def test_slots_that_colocd_did_not_see_count_as_whole_ones(store: Store) -> None:
    slurm = running(10)
    go_on(store, slurm)
    slurm.view = replace(slurm.view, restarts=3, state="PENDING")
    go_on(store, slurm)
    assert row(store).used_s == 3 * 3600.0  # nor was the first seen to start


def test_it_asked_by_its_exit(store: Store) -> None:
    slurm = running(3500)
    go_on(store, slurm)
    see(store, slurm.view, start_s=time.time() - 3500, end_s=time.time(), open=0, outcome="slot")
    slurm.view = replace(slurm.view, state="FAILED", completing=True)
    go_on(store, slurm)
    assert slurm.orders[1] == "requeue" and slurm.orders[2].startswith("update Nice=5")


def test_it_asked_by_its_exit_and_its_report_is_late(store: Store) -> None:
    """colocd was away: the Epilog's report comes a minute after it is back."""
    slurm = running(3500)
    go_on(store, slurm)
    slurm.view = replace(slurm.view, state="FAILED")
    go_on(store, slurm, rounds=2)
    assert slurm.orders == ["signal URG"] and row(store).live
    see(store, slurm.view, start_s=time.time() - 3500, end_s=time.time(), open=0, outcome="slot")
    go_on(store, slurm)
    assert slurm.orders[1] == "requeue" and slurm.orders[2].startswith("update Nice=5")


def test_one_that_is_recovered_is_waited_for(store: Store) -> None:
    slurm = running(600)
    go_on(store, slurm)
    now = time.time()
    see(store, slurm.view, end_s=now, open=0, outcome="oom-gpu")
    work = Recovery(ID, 7, 0, uid=1000, tres="gres/gpu:1", created_s=now, updated_s=now)
    store.recoveries.add(work)
    slurm.view = replace(slurm.view, state="FAILED")
    go_on(store, slurm)
    assert row(store).live
    store.recoveries.change(work, state="failed")
    go_on(store, slurm)
    assert row(store).state == "done"


def test_refused_for_ever_it_is_left_alone(store: Store) -> None:
    slurm = running(3500)
    go_on(store, slurm)
    see(store, slurm.view, start_s=time.time() - 3500, end_s=time.time(), open=0, outcome="slot")
    slurm.again()
    slurm.refuse["update"] = "no"
    go_on(store, slurm, rounds=MAX_TRIES + 2)
    assert row(store).state == "failed" and len(slurm.orders) == 1 + MAX_TRIES


def test_another_job_under_its_id(store: Store) -> None:
    slurm = running(100)
    go_on(store, slurm)
    slurm.view = replace(slurm.view, admin_comment="")
    go_on(store, slurm)
    assert row(store).state == "lost" and slurm.orders == []
