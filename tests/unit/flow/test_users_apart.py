# SPDX-License-Identifier: Apache-2.0
"""Stage place where users may not meet: a share is only ever a pinned one, else a whole GPU.

On real daemons: tests/cluster/test_users_apart.py.
"""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.adapters.store import Store
from slurm_coloc.core.place.queued_jobs import Queued
from slurm_coloc.core.records.lists import PutBack
from slurm_coloc.core.records.runs import StoredDecision
from slurm_coloc.core.slurm.binding import Gpu
from slurm_coloc.core.slurm.cluster import PartitionShape
from slurm_coloc.errors import SlurmError
from slurm_coloc.flow.cluster.context import ShareRequest
from slurm_coloc.flow.place.pins import Placer
from tests.unit.flow.placers import (
    AGES,
    CHANGE,
    ID,
    JOB,
    PINNED,
    REQUEST,
    SHAPE,
    SHARE,
    USE,
    Slurm,
    placement,
    placer,
    run,
    submitted,
)

BEN = 1001
ADA_RUNS = replace(
    PINNED, job_id=3, handle="3", state="RUNNING", nodes="n1", admin_comment="", start_s=1.0
)
WHOLE = {"TresPerNode": "gres/gpu:1", "ReqNodeList": ""}
UNPINNED = "asks for a whole GPU in place of 12 shards until it is pinned"


@pytest.fixture(autouse=True)
def decided(store: Store) -> None:
    """The decision of the waiting job, as it was made of a submission."""
    store._db.execute("DELETE FROM decisions WHERE id = ?", (ID,))
    store.decisions.add(
        StoredDecision(
            id=ID, cluster="c", made_s=1.0, uid=1000, mode="on", action="collocate",
            reason="fits", detail="", shards=12, shard_mib=1024, shards_per_gpu=39,
            exclusive_tres="gres/gpu:1", may_requeue=True, bound=1, smact=0.2,
            request={"uid": 1000},
        )
    )  # fmt: skip


def apart(store: Store, slurm: Slurm, tmp_path: Path, **place: Any) -> Placer:
    return placer(store, slurm, tmp_path, share_with="user", **place)


def late(one: Placer) -> None:
    """All that is pinned or waits at the gate has been so for long."""
    one._memory.since = {job: since_s - 400 for job, since_s in one._memory.since.items()}


def house(slurm: Slurm, *used: int) -> Slurm:
    """n1 alone, with so many shards taken on its GPUs."""
    slurm.uses = [replace(USE, gpus=tuple(Gpu(one, 39) for one in used))]
    return slurm


@pytest.mark.parametrize(("exclusive", "node"), [(True, "n2"), (False, "n1")])
def test_a_job_without_gpus_keeps_other_users_off_its_node(
    store: Store, tmp_path: Path, exclusive: bool, node: str
) -> None:
    """Slurm gives a node with a job of ada's to nobody else under ExclusiveUser."""
    hers = replace(JOB, job_id=3, handle="3", state="RUNNING", nodes="n1", tres_per_node="")
    slurm = Slurm(hers, replace(JOB, uid=BEN))
    partition = PartitionShape("gpu", default=True, exclusive_user=exclusive)
    shape = replace(SHAPE, partitions=(partition,))
    run(placement(store, slurm, tmp_path, shape, share_with="user"))
    assert slurm.updates == [("7", {"TresPerNode": "gres/shard:a100-0:12", "ReqNodeList": node})]


def test_a_newcomer_of_another_user_gets_the_other_gpu(store: Store, tmp_path: Path) -> None:
    slurm = house(Slurm(ADA_RUNS, replace(JOB, uid=BEN)), 0, 12)
    run(apart(store, slurm, tmp_path, policy="best-fit"))
    assert slurm.updates == [("7", {"TresPerNode": "gres/shard:a100-0:12", "ReqNodeList": "n1"})]


def test_without_a_gpu_of_its_own_it_waits_and_asks_for_a_whole_one(
    store: Store, tmp_path: Path
) -> None:
    """It waits, for Slurm would start it on the next idle GPU, and nobody could share that one. If
    colocd dies, the wait ends and it has a whole GPU. It is a share again as soon as one is free,
    by a colocd that has restarted too."""
    other = replace(ADA_RUNS, job_id=4, handle="4", tres_per_node="gres/shard:a100-0:12")
    slurm = house(Slurm(ADA_RUNS, other, replace(JOB, uid=BEN)), 12, 12)
    run(apart(store, slurm, tmp_path))
    assert slurm.updates == [("7", {"TresPerNode": "gres/gpu:1", "StartTime": "now+16"})]
    said = store.events(ID, 7)[-1].text
    assert said == f"{UNPINNED}: every GPU with room has jobs of users that it may not share with"
    asks_whole = replace(JOB, uid=BEN, tres_per_node="gres/gpu:1")
    slurm.jobs = [ADA_RUNS, other, asks_whole]
    run(apart(store, slurm, tmp_path), 2)
    assert slurm.updates[1:] == [("7", {"StartTime": "now+16"})]
    assert store.events(ID, 7)[-1].text == said
    slurm = house(Slurm(ADA_RUNS, asks_whole), 0, 12)
    run(apart(store, slurm, tmp_path))
    assert slurm.updates == [("7", {"TresPerNode": "gres/shard:a100-0:12", "ReqNodeList": "n1"})]


def test_per_task_it_asks_for_a_whole_gpu_and_is_a_share_again(
    store: Store, tmp_path: Path
) -> None:
    """As jobs ask for one GPU under MULTIPLE_SHARING_GRES_PJ."""
    whole = "per-task:gres/gpu:1"
    store._db.execute("UPDATE decisions SET exclusive_tres = ? WHERE id = ?", (whole, ID))
    share = replace(JOB, uid=BEN, tres_per_node="", tres_per_task="cpu=2,gres/shard:12")
    other = replace(ADA_RUNS, job_id=4, handle="4", tres_per_node="gres/shard:a100-0:12")
    slurm = house(Slurm(ADA_RUNS, other, share), 12, 12)
    run(apart(store, slurm, tmp_path))
    bind = "gres/gpu:per_task:1"
    assert slurm.updates == [
        ("7", {"TresPerTask": "gres/gpu:1", "TresBind": bind, "StartTime": "now+16"})
    ]
    slurm = house(Slurm(ADA_RUNS, replace(share, tres_per_task="gres/gpu:1")), 0, 12)
    run(apart(store, slurm, tmp_path))
    pin = {"TresPerTask": "gres/shard:a100-0:12", "TresBind": "gres/shard:per_task:12"}
    assert slurm.updates == [("7", {**pin, "ReqNodeList": "n1"})]


@pytest.mark.parametrize("begun", [False, True])
def test_where_a_start_time_costs_age_only_who_has_none_waits(
    store: Store, tmp_path: Path, begun: bool
) -> None:
    """A job that has waited for hours would begin anew. It asks for a whole GPU until it is pinned;
    one that waits so since its submission has no age yet."""
    other = replace(ADA_RUNS, job_id=4, handle="4", tres_per_node="gres/shard:a100-0:12")
    slurm = house(Slurm(ADA_RUNS, other, replace(JOB, uid=BEN)), 12, 12)
    shape = replace(AGES, constraints=False)
    one = placement(store, slurm, tmp_path, shape, share_with="user")._placer
    if begun:
        one._memory.begun[ID] = None
        slurm.jobs[2] = replace(JOB, uid=BEN, reason="BeginTime", start_s=time.time() + 5)
    run(one)
    waits = {"StartTime": "now+16"} if begun else {}
    assert slurm.updates == [("7", {"TresPerNode": "gres/gpu:1", **waits})]


def test_a_job_that_was_put_back_is_pinned_while_it_avoids_a_node(
    store: Store, tmp_path: Path
) -> None:
    """Else Slurm would put it beside somebody else again, on another node."""
    row = PutBack(ID, 7, 0, uid=1000, node="n1", why="", was="", base=0, created_s=1, updated_s=1)
    store.putbacks.add(row)
    back = replace(JOB, restarts=1, exc_nodes="n1")
    slurm = Slurm(back)
    run(apart(store, slurm, tmp_path))
    assert slurm.updates == [], "the put-back is not done with it"
    store.putbacks.change(row, excluded=True, delayed=True)
    run(apart(store, slurm, tmp_path))
    assert slurm.updates == [("7", {"TresPerNode": "gres/shard:a100-0:12", "ReqNodeList": "n2"})]


def test_a_limit_on_gpus_does_not_hold_back_a_share(store: Store, tmp_path: Path) -> None:
    store.note(ID, 7, "place", f"{UNPINNED}: others come first")
    waits = replace(JOB, tres_per_node="gres/gpu:1", reason="QOSMaxGRESPerUser")
    slurm = Slurm(waits)
    run(apart(store, slurm, tmp_path))
    assert slurm.updates[0][1]["TresPerNode"].startswith("gres/shard:a100-0:12")  # type: ignore[union-attr]


def test_a_whole_gpu_after_an_out_of_memory_stays_whole(store: Store, tmp_path: Path) -> None:
    store.note(ID, 7, "place", "n1 GPU a100-1 by magm: idle")
    slurm = Slurm(replace(JOB, tres_per_node="gres/gpu:1", restarts=1))
    run(apart(store, slurm, tmp_path))
    assert slurm.updates == []


@pytest.mark.parametrize(
    "change",
    [
        {"reason": "Dependency"},
        {"reason": "JobHeldUser", "priority": 0},
        {"reservation": "course"},  # colocd pins no job of a reservation
    ],
)
def test_a_pin_that_nobody_watches_is_lost(
    store: Store, tmp_path: Path, change: dict[str, Any]
) -> None:
    """When the job becomes eligible another user's may be there."""
    slurm = Slurm(replace(PINNED, **change))
    run(apart(store, slurm, tmp_path))
    assert slurm.updates == [("7", WHOLE)]


def test_where_agents_are_silent_it_is_a_whole_gpu(store: Store, tmp_path: Path) -> None:
    slurm = Slurm(PINNED)
    one = apart(store, slurm, tmp_path, stale_s=5.0)
    one._sources.live._beats = {}
    one._sources.live._began_s -= 6.0
    run(one)
    assert slurm.updates == [("7", WHOLE)]


def test_a_site_that_lets_anyone_share_again(store: Store, tmp_path: Path) -> None:
    """The key was changed while the job asked for a whole GPU."""
    store.note(ID, 7, "place", f"{UNPINNED}: others come first")
    slurm = house(Slurm(replace(JOB, tres_per_node="gres/gpu:1")), 39, 39)
    run(placer(store, slurm, tmp_path))
    assert slurm.updates == [("7", {"TresPerNode": "gres/shard:12"})]


def test_at_submission_a_share_is_pinned_or_asks_for_a_whole_gpu(
    store: Store, tmp_path: Path
) -> None:
    slurm = house(Slurm(ADA_RUNS), 0, 12)
    ben, array = replace(REQUEST, uid=BEN), replace(REQUEST, array="0-9")
    first, second = submitted(apart(store, slurm, tmp_path), ben, array)
    assert first["tres_per_node"] == "gres/shard:a100-0:12"
    assert second["tres_per_node"] == "gres/gpu:1"
    assert store.events(ID, None)[-1].text.startswith(UNPINNED)


def test_before_the_first_round_it_asks_for_a_whole_gpu(store: Store, tmp_path: Path) -> None:
    one = apart(store, Slurm(), tmp_path)
    found = one.submitting.change(ShareRequest(ID, REQUEST, SHARE, 0.2, CHANGE))
    assert found.fields["tres_per_node"] == "gres/gpu:1"


def test_after_a_surprise_nothing_more_is_pinned(store: Store, tmp_path: Path) -> None:
    """The plan counted on a job that was to leave its GPU and has started there instead."""

    class Started(Slurm):
        async def update(self, handle: str, **fields: str | int) -> None:
            if handle == "7":
                raise SlurmError("Job is no longer pending execution", "slurm-refused")
            await super().update(handle, **fields)

    first: Queued = replace(PINNED, reason="Dependency")
    second = replace(JOB, job_id=8, handle="8", uid=BEN)
    slurm = Started(first, second)
    one = apart(store, slurm, tmp_path)
    run(one)
    assert slurm.updates == []
    slurm.jobs = [replace(ADA_RUNS, job_id=7), second]
    house(slurm, 0, 12)
    run(one)
    assert slurm.updates == [("8", {"TresPerNode": "gres/shard:a100-0:12", "ReqNodeList": "n1"})]


REST = replace(
    JOB, job_id=6, handle="6_1", tres_per_node="gres/gpu:1", array=True, array_id=6
)  # of an array whose first task has left it


def test_all_tasks_of_an_array_share(store: Store, tmp_path: Path) -> None:
    """The record of the tasks that wait has the events of those that left it, and no pin of theirs
    counts as its own."""
    store.note(ID, None, "place", f"{UNPINNED}: colocd has not looked at it yet")
    slurm = Slurm(replace(REST, handle="6_0"))
    one = apart(store, slurm, tmp_path)
    run(one)
    assert slurm.updates == [("6_0", {"TresPerNode": "gres/shard:a100-0:12", "ReqNodeList": "n1"})]
    first = replace(ADA_RUNS, handle="6_0", tres_per_node="gres/shard:a100-0:12", array_id=6)
    slurm.uses = [replace(USE, gpus=(Gpu(12, 39), Gpu(0, 39)))]
    late(one)
    slurm.jobs = [first, REST]
    run(one)
    assert slurm.updates[1:] == [
        ("6_1", {"TresPerNode": "gres/shard:a100-1:12", "ReqNodeList": "n1"})
    ]
    assert "long enough" not in store.events(ID, 6)[-1].text
    second = replace(PINNED, job_id=8, handle="6_1", array_id=6)
    slurm.jobs = [first, second, replace(REST, handle="6_2")]
    run(apart(store, slurm, tmp_path))
    assert [handle for handle, _ in slurm.updates[2:]] == ["6_2"], "after a restart too"


@pytest.mark.parametrize(
    ("kind", "task"),
    [
        ("place", {"job_id": 8, "handle": "6_0", "restarts": 1}),
        ("place", {"handle": "6_9", "restarts": 1}),  # the last one has the array's number
        ("siblings", {}),
    ],
)
def test_tasks_on_whole_gpus_after_an_out_of_memory_stay_there(
    store: Store, tmp_path: Path, kind: str, task: dict[str, Any]
) -> None:
    store.note(ID, None, "place", f"{UNPINNED}: colocd has not looked at it yet")
    store.note(ID, 6, kind, "n1 GPU a100-1 by magm: idle")
    slurm = Slurm(replace(REST, **task))
    run(apart(store, slurm, tmp_path))
    assert slurm.updates == []


def test_a_job_that_gave_up_is_a_share_again_after_a_reload(store: Store, tmp_path: Path) -> None:
    other = replace(ADA_RUNS, job_id=4, handle="4", tres_per_node="gres/shard:a100-0:12")
    slurm = house(Slurm(ADA_RUNS, other, replace(JOB, uid=BEN)), 12, 12)
    one = apart(store, slurm, tmp_path)
    run(one)
    late(one)
    waits = replace(JOB, uid=BEN, tres_per_node="gres/gpu:1", reason="BeginTime")
    slurm.jobs = [ADA_RUNS, other, replace(waits, start_s=time.time() + 15)]
    run(one)
    assert slurm.updates[1:] == [("7", {"StartTime": "now"})]
    slurm = house(Slurm(ADA_RUNS, replace(waits, reason="Resources")), 0, 12)
    run(apart(store, slurm, tmp_path))
    assert slurm.updates == [("7", {"TresPerNode": "gres/shard:a100-0:12", "ReqNodeList": "n1"})]


def test_a_pin_that_slurm_does_not_honour_is_changed_once_in_max_pin_s(
    store: Store, tmp_path: Path
) -> None:
    """Its node may have a reservation soon, or a limit that only Slurm knows."""
    slurm = Slurm(PINNED)
    store.note(ID, 7, "place", "n1 GPU a100-1 by magm: idle")
    one = apart(store, slurm, tmp_path)
    run(one)
    late(one)
    run(one)
    pin = {"TresPerNode": "gres/shard:a100-0:12", "ReqNodeList": "n2"}
    assert slurm.updates == [("7", pin)]
    slurm.jobs = [replace(PINNED, tres_per_node="gres/shard:a100-0:12", req_nodes="n2")]
    run(one, 2)
    assert len(slurm.updates) == 1
