# SPDX-License-Identifier: Apache-2.0
"""Stage place with a plan of the whole queue: a job on whole GPUs waits for its owner's shares.

On real daemons: tests/cluster/test_planned.py.
"""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.adapters.store import Store
from slurm_coloc.core.place.steering import Planned, Snapshot
from slurm_coloc.core.records.runs import StoredDecision
from slurm_coloc.flow.place.pins import Placer
from tests.unit.flow.placers import (
    ID,
    JOB,
    PINNED,
    REQUEST,
    Slurm,
    Update,
    crowded,
    placer,
    run,
    submitted,
)

OTHER = "ba9876543210"
LATER = "waits: the plan starts it later: others go first, or more room comes soon"
#: the waiting jobs by their numbers, as (GPU, starts now)
Spots = dict[int, tuple[int, bool]]
WHOLE = replace(
    JOB,
    job_id=5,
    handle="5",
    priority=2000,
    tres_per_node="gres/gpu:2",
    admin_comment=f"coloc:1:{OTHER}:exclusive:multi-gpu:0",
)


class Plan:
    """In place of the search."""

    def __init__(self, spots: Spots) -> None:
        self.spots = spots

    def know(self, store: Store) -> None:
        """It needs no pairs."""

    def of(self, snapshot: Snapshot) -> Snapshot:
        spots = tuple(Planned(job, (gpu,), now) for job, (gpu, now) in self.spots.items())
        return replace(snapshot, plan=spots)


SHARES = replace(
    WHOLE,
    tres_per_node="",
    tres_per_task="gres/shard:12",
    num_tasks=2,
    admin_comment=f"coloc:1:{OTHER}:collocate:estimated:12",
)


def decided(
    store: Store, reason: str = "multi-gpu", mode: str = "on", action: str = "exclusive"
) -> None:
    """The decision of the job of two GPUs."""
    store.decisions.add(
        StoredDecision(
            id=OTHER, cluster="c", made_s=1.0, uid=1000, mode=mode, action=action,
            reason=reason, detail="", shards=0, shard_mib=1024, shards_per_gpu=39,
            exclusive_tres="gres/gpu:2", may_requeue=True, bound=1,
        )
    )  # fmt: skip


def planned(store: Store, slurm: Slurm, tmp_path: Path, spots: Spots, **place: Any) -> Placer:
    one = placer(store, slurm, tmp_path, plan="order", **place)
    one._plan = Plan(spots)  # type: ignore[assignment]
    return one


def test_it_waits_until_its_turn_comes(store: Store, tmp_path: Path) -> None:
    decided(store)
    slurm = Slurm(WHOLE, JOB)
    one = planned(store, slurm, tmp_path, {5: (0, False), 7: (1, True)})
    run(one)
    waits: tuple[str, Update] = ("5", {"StartTime": "now+16"})
    pin: Update = {"TresPerNode": "gres/shard:a100-1:12", "ReqNodeList": "n1"}
    assert sorted(slurm.updates) == [waits, ("7", pin)]
    assert store.events(OTHER, 5)[-1].text == LATER
    slurm.jobs = [replace(WHOLE, reason="BeginTime"), PINNED]
    run(one, 2)
    assert len(slurm.updates) == 2, "renewed only before it is over"
    one._plan = Plan({5: (0, True), 7: (1, False)})  # type: ignore[assignment]
    run(one)
    assert ("5", {"StartTime": "now"}) in slurm.updates
    assert store.events(OTHER, 5)[-1].text == "left to Slurm: the plan lets it wait no longer"


def test_shares_of_several_gpus_are_slurm_s(store: Store, tmp_path: Path) -> None:
    """Slurm cannot be told which ones: kept back, such a job finds them late."""
    decided(store, "estimated", action="collocate")
    slurm = Slurm(SHARES, JOB)
    run(planned(store, slurm, tmp_path, {5: (0, False), 7: (1, True)}))
    assert "5" not in dict(slurm.updates)


@pytest.mark.parametrize(
    "change",
    [
        {"restarts": 1},
        {"array": True},
        {"num_nodes": 2},
        {"reservation": "course"},
        {"features": "[rack1*2]"},
        {"admin_comment": ""},
        {"reason": "BeginTime"},
        {"uid": 1001},
    ],
)
def test_who_waits_for_no_plan(store: Store, tmp_path: Path, change: dict[str, Any]) -> None:
    decided(store)
    slurm = Slurm(replace(WHOLE, **change), JOB)
    run(planned(store, slurm, tmp_path, {5: (0, False), 7: (1, True)}))
    assert "5" not in dict(slurm.updates)


@pytest.mark.parametrize(
    ("reason", "mode"),
    [("user-exclusive", "on"), ("het-job", "on"), ("whole-node", "on"), ("multi-gpu", "observe")],
)
def test_by_what_was_decided(store: Store, tmp_path: Path, reason: str, mode: str) -> None:
    decided(store, reason, mode)
    slurm = Slurm(WHOLE, JOB)
    run(planned(store, slurm, tmp_path, {5: (0, False), 7: (1, True)}))
    assert "5" not in dict(slurm.updates)


def told(store: Store) -> list[str]:
    """The events of the job, behind the one of the test's set-up."""
    return [one.text for one in store.events(ID, 7)][1:]


def test_the_owner_of_a_share_is_told_why_it_waits(store: Store, tmp_path: Path) -> None:
    """It was submitted waiting for a round, and then the plan lets it wait."""
    slurm = Slurm()
    one = planned(store, slurm, tmp_path, {7: (0, False)})
    (asked,) = submitted(one, REQUEST)
    start_s = float(asked["begin_time"])
    slurm.jobs = [replace(JOB, reason="BeginTime", start_s=start_s)]
    run(one, 3)
    assert told(store) == [LATER]
    one._plan = Plan({7: (0, True)})  # type: ignore[assignment]
    run(one)
    assert told(store)[1].startswith("n1 GPU a100-0 by plan")


def test_each_reason_of_a_wait_is_told_once(store: Store, tmp_path: Path) -> None:
    slurm = Slurm(JOB)
    crowded(slurm)
    one = planned(store, slurm, tmp_path, {7: (0, False)}, smact_gate=0.05)
    for spots in ({7: (0, False)}, {}, {7: (0, False)}, {}):
        one._plan = Plan(spots)  # type: ignore[assignment]
        run(one, 2)
        slurm.jobs = [replace(JOB, reason="BeginTime", start_s=time.time() + 10)]
    assert told(store) == [
        LATER,
        "waits: every GPU with room is too busy",
    ]
