# SPDX-License-Identifier: Apache-2.0
"""A recovered job's raised place in the queue, and how it ends."""

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from slurm_coloc.adapters.store import Store
from slurm_coloc.config import Config, parse_config
from slurm_coloc.core.records.lists import SlottedJob
from slurm_coloc.core.records.runs import Run
from slurm_coloc.core.recover.outcome import Outcome
from slurm_coloc.core.slurm.job import Terms
from slurm_coloc.errors import SlurmError
from slurm_coloc.flow.recover.recover import PriorityBoost, Recoverer
from slurm_coloc.flow.recover.retry_limit import MAX_TRIES
from slurm_coloc.flow.watch.adopt import adopt
from tests.unit.flow import test_recover as recovering
from tests.unit.flow.contexts import context
from tests.unit.flow.test_recover import rounds

store = recovering.store
ID = "0123456789ab"


class Recording(recovering.Recording):
    """Also with a nice value, which goes with each priority that is set, as in slurmctld."""

    nice, refuses = 0, ""

    async def terms(self, handle: str) -> Terms:
        return Terms(nice=self.nice)

    async def update(self, handle: str, **fields: object) -> None:
        if self.refuses:
            raise SlurmError(self.refuses, "slurm-refused")
        await super().update(handle, **fields)
        self.nice = 0 if "Priority" in fields else int(str(fields.get("Nice", self.nice)))

    async def release(self, handle: str) -> None:
        self.nice = self.nice if self.view.held else 0
        await super().release(handle)


def test_the_time_at_the_front_ends(store: Store) -> None:
    slurm = Recording()
    rounds(store, slurm, 1)
    assert slurm.view.priority == 100_000
    [raised] = store.recoveries.raised()
    rounds(store, slurm, 1)
    assert slurm.view.priority == 100_000, "its time is not over"
    store.recoveries.change(raised, raised_s=time.time() - 7200)
    released = slurm.released
    rounds(store, slurm, 1)
    assert (slurm.released, slurm.view.priority) == (released + 1, 10)
    assert store.recoveries.raised() == []
    assert "not raised now" in store.events("0123456789ab", 7)[-1].text


def test_a_job_that_slurm_put_back_later_is_not_in_front_for_good(store: Store) -> None:
    """It had started within its time; preempted, it waits with the priority that was set."""
    slurm = Recording()
    rounds(store, slurm, 1)
    waits = slurm.view
    for state, released in (("RUNNING", 0), ("PENDING", 1)):
        slurm.view = replace(waits, state=state, restarts=waits.restarts + (state == "PENDING"))
        [raised] = store.recoveries.raised()
        store.recoveries.change(raised, raised_s=time.time() - 7200)
        before = slurm.released
        rounds(store, slurm, 1)
        assert slurm.released == before + released
    assert slurm.view.priority == 10 and store.recoveries.raised() == []


def test_what_has_ended_is_not_asked_for_again(store: Store) -> None:
    slurm = Recording()
    rounds(store, slurm, 1)
    [raised] = store.recoveries.raised()
    store.recoveries.change(raised, raised_s=time.time() - 7200)
    slurm.view = replace(slurm.view, state="COMPLETED")
    rounds(store, slurm, 1)
    assert store.recoveries.raised() == []


def test_a_hold_of_the_owner_s_outlives_the_time_at_the_front(store: Store) -> None:
    slurm = Recording()
    rounds(store, slurm, 1)
    [raised] = store.recoveries.raised()
    store.recoveries.change(raised, raised_s=time.time() - 7200)
    slurm.view = replace(slurm.view, priority=0)
    released = slurm.released
    rounds(store, slurm, 1)
    assert slurm.released == released
    assert store.recoveries.raised() == []


def test_by_nice_the_owner_s_own_value_comes_back(store: Store) -> None:
    slurm = Recording()
    slurm.nice = 7
    config = parse_config({"recovery": {"raise_by": "nice"}}, "test")
    recoverer = Recoverer(context(store, slurm, config), lambda view: None)
    asyncio.run(recoverer.round())
    assert slurm.done[-1]["Nice"] == 7 - 10_000
    [raised] = store.recoveries.raised()
    store.recoveries.change(raised, raised_s=time.time() - 7200)
    asyncio.run(recoverer.round())
    assert slurm.done[-1] == {"Nice": 7}


def over(store: Store) -> None:
    """Its time at the front is over."""
    [raised] = store.recoveries.raised()
    store.recoveries.change(raised, raised_s=time.time() - 7200)


def test_the_owner_s_nice_value_comes_back_after_a_priority(store: Store) -> None:
    """Slurm makes it 0 with each priority that is set."""
    slurm = Recording()
    slurm.nice = 200
    rounds(store, slurm, 1)
    assert (slurm.view.priority, slurm.nice) == (100_000, 0)
    over(store)
    rounds(store, slurm, 1)
    assert (slurm.view.priority, slurm.nice) == (10, 200)
    assert slurm.done[-1] == {"Nice": 200}


def test_a_second_recovery_that_is_not_raised_has_its_nice_value_again(store: Store) -> None:
    """The first one's priority took it, and the hold of the second took that priority."""
    work = store.recoveries.open()[0]
    store.recoveries.change(work, front=False, nice=200)
    slurm = Recording()
    rounds(store, slurm, 1)
    assert slurm.nice == 200 and "Priority" not in slurm.done[-1]


@pytest.mark.parametrize("by", ["nice", "qos"])
def test_what_was_held_is_taken_back_once_it_is_not(store: Store, by: str) -> None:
    """Neither ends with the hold, as a priority does; and under priority/basic a nice value would
    end it."""
    slurm = Recording()
    config = parse_config({"recovery": {"raise_by": by, "qos": "first"}}, "test")
    boosts = context(store, slurm, config)
    asyncio.run(Recoverer(boosts, lambda view: None).round())
    over(store)
    raised, slurm.view = slurm.done[-1], replace(slurm.view, priority=0, qos="first")
    store.recoveries.change(store.recoveries.raised()[0], qos="normal")
    asyncio.run(PriorityBoost(boosts).round())
    assert slurm.done[-1] == raised
    slurm.view = replace(slurm.view, priority=10)
    asyncio.run(PriorityBoost(boosts).round())
    assert slurm.done[-1] == ({"Nice": 0} if by == "nice" else {"QOS": "normal"})
    assert store.recoveries.raised() == []


def test_a_refusal_is_not_the_last_word(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = Recording()
    boosts = context(store, slurm, parse_config({"recovery": {"raise_by": "nice"}}, "test"))
    asyncio.run(Recoverer(boosts, lambda view: None).round())
    over(store)
    slurm.refuses = "busy"
    for tries in range(1, MAX_TRIES):
        asyncio.run(PriorityBoost(boosts).round())
        assert [row.tries for row in store.recoveries.raised()] == [tries]
    asyncio.run(PriorityBoost(boosts).round())
    assert store.recoveries.raised() == []


def test_what_is_looked_at_again_is_not_looked_at_each_second(store: Store) -> None:
    slurm = Recording()
    boosts = context(store, slurm, parse_config({"recovery": {"raise_by": "nice"}}, "test"))
    asyncio.run(Recoverer(boosts, lambda view: None).round())
    over(store)
    slurm.refuses = "busy"
    boost = PriorityBoost(boosts)

    async def go() -> None:
        for _ in range(5):
            await boost.round()

    asyncio.run(go())
    assert [row.tries for row in store.recoveries.raised()] == [1]


def test_at_its_slot_s_end_it_goes_behind_the_others(store: Store) -> None:
    """It put itself back, with the priority that is set; it has had its turn."""
    slurm = Recording()
    adopt(Config(), store, recovering.two_nodes(), slurm.view)
    store.slots.add(
        SlottedJob(ID, 7, uid=1000, state="open", total_s=None, created_s=1.0, updated_s=1.0)
    )
    rounds(store, slurm, 1)
    run: Any = {"uid": 1000, "submit_s": 1.0}
    ran = Run(ID, 7, 1, state="RUNNING", **run)
    store.runs.see(ran)
    rounds(store, slurm, 1)
    assert slurm.view.priority == 100_000
    store.runs.close(ran, outcome=str(Outcome.SLOT))
    store.runs.see(Run(ID, 7, 2, state="PENDING", **run))
    slurm.view = replace(slurm.view, restarts=2)
    rounds(store, slurm, 1)
    assert slurm.view.priority == 10 and store.recoveries.raised() == []
    assert "at its time slot's end: not raised now" in store.events(ID, 7)[-1].text
