# SPDX-License-Identifier: Apache-2.0
"""What an out-of-memory of one task means for the tasks of its array that wait for a pin.

On real daemons: tests/cluster/test_array_tasks.py.
"""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.adapters.store import Store
from slurm_coloc.core.place.queued_jobs import Queued
from slurm_coloc.core.records.lists import ArrayPlan
from slurm_coloc.core.slurm.binding import Gpu
from slurm_coloc.core.slurm.job import JobView
from slurm_coloc.flow.place.changes import unpinned_text
from slurm_coloc.flow.recover.array_tasks import Resizer
from tests.unit.flow import placers
from tests.unit.flow.contexts import context
from tests.unit.flow.placers import ID, JOB, MARK, SHAPE, USE, placement

WAITS = replace(
    JOB, job_id=6, handle="6_1", tres_per_node="gres/gpu:1", array=True, array_id=6
)  # the tasks that have no pin yet
PINNED = "gres/shard:a100-0:12"  # the task that ran out of memory


class Slurm(placers.Slurm):
    """Also as the commands for arrays see it."""

    async def tasks_of(self, array_job_id: int) -> list[JobView]:
        return [
            JobView(
                job.job_id, "PENDING", tres_per_node=job.tres_per_node, admin_comment=MARK,
                array_job_id=6, array_task=job.handle.removeprefix("6_"),
            )
            for job in self.jobs
        ]  # fmt: skip

    async def set_gres(self, handle: str, tres: str) -> None:
        await self.update(handle, TresPerNode=tres)
        names = (handle, handle.replace("_[", "_").replace("]", ""))
        self.jobs = [
            replace(job, tres_per_node=tres) if job.handle in names else job for job in self.jobs
        ]


@pytest.fixture
def store(store: Store) -> Store:
    decision = store.decisions.of(ID)
    assert decision is not None
    store._db.execute("DELETE FROM decisions WHERE id = ?", (ID,))
    store.decisions.add(replace(decision, exclusive_tres="gres/gpu:1", request={"uid": 1000}))
    return store


def ran_out(store: Store, tres: str) -> None:
    store.arrays.plan(
        ArrayPlan(
            decision=ID, array_job_id=6, uid=1000, was=PINNED, tres=tres, why="oom-gpu",
            updated_s=1.0,
        )
    )  # fmt: skip


def guarded(store: Store, folder: Path, *jobs: Queued) -> tuple[Slurm, Any]:
    """A colocd that has looked at these tasks, while there is no room for a share."""
    store.note(ID, None, "place", unpinned_text(12, "colocd has not looked at it yet"))
    slurm = Slurm(*jobs)
    slurm.uses = [replace(USE, gpus=(Gpu(39, 39), Gpu(39, 39)))]
    one = placement(store, slurm, folder, SHAPE, share_with="user")
    placers.run(one)
    slurm.uses = [USE]
    slurm.updates.clear()
    return slurm, one


def resize(store: Store, slurm: Slurm, noted: Any = lambda: None) -> None:
    asyncio.run(Resizer(context(store, slurm, shape=SHAPE), noted).round())


def test_the_next_pin_has_the_new_shards(store: Store, tmp_path: Path) -> None:
    """The tasks ask for whole GPUs until each is pinned, so none shows the old share."""
    slurm, one = guarded(store, tmp_path, WAITS)
    ran_out(store, "gres/shard:a100-0:18")
    resize(store, slurm, one.forget_shares)
    assert slurm.updates == [] and store.arrays.open() == []
    said = store.events(ID, 6)[-1]
    assert (said.kind, said.text) == ("siblings", unpinned_text(18, "a task ran out of GPU memory"))
    placers.run(one)
    assert slurm.updates == [("6_1", {"TresPerNode": "gres/shard:a100-0:18", "ReqNodeList": "n1"})]


def test_on_whole_gpus_they_stay_there(store: Store, tmp_path: Path) -> None:
    slurm, one = guarded(store, tmp_path, WAITS)
    ran_out(store, "gres/gpu:1")
    resize(store, slurm, one.forget_shares)
    placers.run(one)
    assert not any("shard" in str(fields) for _, fields in slurm.updates)
    assert "ask for gres/gpu:1 now: a task ran out" in store.events(ID, 6)[-1].text


def test_a_pinned_task_that_waits_is_pinned_anew(store: Store, tmp_path: Path) -> None:
    """Without a pin it may be no share: another user's job could come there first."""
    pinned = replace(WAITS, job_id=8, handle="6_1", tres_per_node="gres/shard:a100-1:12")
    slurm, one = guarded(store, tmp_path, replace(WAITS, handle="6_2"))
    slurm.jobs.insert(0, pinned)
    ran_out(store, "gres/shard:a100-0:18")
    resize(store, slurm, one.forget_shares)
    assert slurm.updates == [("6_1", {"TresPerNode": "gres/gpu:1"})]
    placers.run(one)
    assert slurm.updates[1][1]["TresPerNode"] == "gres/shard:a100-0:18"


def test_among_all_users_they_lose_the_pin_of_the_task_that_ended(store: Store) -> None:
    """Else all of them would wait for its GPU."""
    slurm = Slurm(replace(WAITS, tres_per_node="gres/shard:12"))
    ran_out(store, "gres/shard:a100-0:18")
    resize(store, slurm)
    assert slurm.updates == [("6_1", {"TresPerNode": "gres/shard:18"})]
    assert "1 waiting tasks of the array ask for gres/shard:18 now" in store.events(ID, 6)[-1].text
