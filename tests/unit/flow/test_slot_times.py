# SPDX-License-Identifier: Apache-2.0
"""Time slots: what counts as used, and what is left for the next one."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.adapters.store import Store
from slurm_coloc.config import SlowdownConfig
from slurm_coloc.core.records.lists import StretchedRun
from tests.unit.flow.test_slots import ID, VIEW, Slurm, go_on, opened, row, running, see


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return opened(tmp_path)


def lost(
    store: Store,
    lost_s: float,
    ago_s: float,
    began_s: float,
    speed: float = 0.5,
    base_s: float | None = None,
    set_s: float | None = None,
) -> None:
    """Its present run lost so much beside others, and it began so long ago."""
    now = time.time()
    store.stretches.add(
        StretchedRun(
            decision=ID,
            job_id=7,
            restart=0,
            uid=1000,
            start_s=now - began_s,
            base_s=base_s,
            set_s=set_s,
            at_s=now - ago_s,
            lost_s=lost_s,
            speed=speed,
            created_s=now,
            updated_s=now,
        )
    )


def slot_ends(store: Store, slurm: Slurm, ran_s: float = 3600.0) -> None:
    """Its run asked to go on, and its job is back in the queue."""
    now = time.time()
    see(store, slurm.view, start_s=now - ran_s, end_s=now, open=0, outcome="slot")
    slurm.again()


def test_what_it_lost_beside_others_is_no_time_of_its_own(store: Store) -> None:
    slurm = running(3500)
    go_on(store, slurm)
    now = time.time()
    lost(store, 600.0, 0.0, 3600.0, speed=1.0)
    see(store, slurm.view, start_s=now - 3600, end_s=now, open=0, outcome="slot")
    slurm.again()
    go_on(store, slurm, rounds=2)
    assert row(store).used_s == pytest.approx(3000, abs=2)
    assert slurm.orders[1:] == ["update Nice=5 TimeLimit=1390 StartTime=now+5"]


def test_a_last_slot_that_is_stretched_beyond_its_end_has_its_signal(store: Store) -> None:
    slurm = running(3490)
    slurm.limit_s = 3000.0
    go_on(store, slurm)
    assert slurm.orders == []  # its time limit ends it
    lost(store, 500.0, 0.0, 3490.0)
    go_on(store, slurm)
    assert slurm.orders == []
    known = store.stretches.of(ID, 7, 0)
    assert known is not None
    store.stretches.change(known, lost_s=1500.0)
    go_on(store, slurm, rounds=2)
    assert slurm.orders == ["signal URG"]


@pytest.mark.parametrize(
    ("settings", "used_s"),
    [({}, 3000 - 5), ({"stretch": "off"}, 3600), ({"max_factor": 1.1}, 3273)],
)
def test_what_is_given_back_is_what_limits_give(
    store: Store, settings: dict[str, Any], used_s: float
) -> None:
    slurm = running(3500)
    go_on(store, slurm)
    lost(store, 600.0, 10.0, 3600.0)
    now = time.time()
    see(store, slurm.view, start_s=now - 3600, end_s=now, open=0, outcome="slot")
    slurm.again()
    go_on(store, slurm, slowdown=SlowdownConfig(**settings))
    assert row(store).used_s == pytest.approx(used_s, abs=2)


@pytest.mark.parametrize(
    ("limit_s", "set_s", "left"),
    [
        (7 * 86400.0, None, "TimeLimit=10020 "),  # the admin's seven days less the hour
        (43200.0, None, "TimeLimit=660 "),
        (None, None, ""),
        (90000.0, 90000.0, "TimeLimit=1380 "),  # we stretched it
    ],
)
def test_a_limit_that_somebody_else_set_is_what_all_slots_have(
    store: Store, limit_s: float | None, set_s: float | None, left: str
) -> None:
    slurm = running(3500)
    go_on(store, slurm)
    lost(store, 0.0, 0.0, 3600.0, speed=1.0, base_s=86400.0, set_s=set_s)
    slurm.limit_s = limit_s
    slot_ends(store, slurm)
    go_on(store, slurm, rounds=2)
    assert slurm.orders[1:] == [f"update Nice=5 {left}StartTime=now+5"]


def test_a_slot_that_was_never_bounded_tells_nothing(store: Store) -> None:
    """Refused while it waited, it ran with the limit of the slot before."""
    slurm = running(3500)
    go_on(store, slurm)
    slot_ends(store, slurm)
    slurm.refuse["update"] = "no"
    go_on(store, slurm)
    slurm.view = replace(slurm.view, state="RUNNING", start_s=time.time() - 600)
    see(store, slurm.view, end_s=time.time(), open=0, outcome="requeued")
    slurm.again()
    slurm.refuse.clear()
    slurm.orders.clear()
    go_on(store, slurm)
    assert slurm.orders == ["update Nice=5 TimeLimit=1380 StartTime=now+5"]


@pytest.mark.parametrize(
    ("given_min", "shown_s", "first_s"), [(None, None, None), (None, 604800.0, None),
                                          (1440, 86400.0, 86400.0)]
)  # fmt: skip
def test_without_time_it_has_the_partitions_default(
    store: Store, given_min: int | None, shown_s: float | None, first_s: float | None
) -> None:
    """Of a job that waits Slurm shows MaxTime, and sets DefaultTime when it starts."""
    request = json.dumps({"time_limit": given_min})
    store._db.execute("UPDATE decisions SET request = ?", (request,))
    slurm = Slurm(replace(VIEW, state="PENDING"), shown_s)
    go_on(store, slurm)
    assert row(store).total_s == first_s
    slurm.view, slurm.limit_s = replace(VIEW, start_s=time.time() - 3500), 86400.0
    go_on(store, slurm)
    slot_ends(store, slurm)
    go_on(store, slurm, rounds=2)
    assert slurm.orders[1:] == ["update Nice=5 TimeLimit=1380 StartTime=now+5"]


@pytest.mark.parametrize(
    ("signalled", "seen_ago_s", "used_s"),
    [
        (False, None, 3600),
        (True, None, 3480 + 180),
        (False, 30000, 6000 + 180),  # it did not leave, and was seen longer than that
        (False, 10, 36000),
    ],
)
def test_while_colocd_was_away_a_run_lasted_a_slot(
    store: Store, signalled: bool, seen_ago_s: float | None, used_s: float
) -> None:
    slurm = running(10)
    go_on(store, slurm)
    began_s = time.time() - 36000
    if signalled:
        store.slots.change(row(store), signalled_s=began_s + 3480)
    if seen_ago_s is not None:
        lost(store, 0.0, seen_ago_s, 36000.0, speed=1.0)
    slot_ends(store, slurm, 36000.0)
    go_on(store, slurm)
    assert row(store).used_s == pytest.approx(used_s, abs=2)


@pytest.mark.parametrize(("ran_s", "minutes"), [(600, 1380), (85000, 1419)])
def test_one_that_runs_again_is_not_ended_by_its_bound(
    store: Store, ran_s: float, minutes: int
) -> None:
    """colocd was away: it has run beyond what was left, and has the time to save."""
    slurm = running(3500)
    go_on(store, slurm)
    slot_ends(store, slurm)
    slurm.view = replace(slurm.view, state="RUNNING", start_s=time.time() - ran_s)
    go_on(store, slurm)
    assert slurm.orders[1] == f"update TimeLimit={minutes}"
    assert slurm.orders[2:] == (["signal URG"] if ran_s > 3600 else [])
    # and the bound that was set is none that somebody else has set
    slurm.limit_s, total_s = minutes * 60.0, row(store).total_s
    slot_ends(store, slurm, ran_s)
    go_on(store, slurm)
    assert row(store).total_s == total_s
