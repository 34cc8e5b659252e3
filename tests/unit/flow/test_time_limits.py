# SPDX-License-Identifier: Apache-2.0
"""Time limits when Slurm refuses, the owner edits, colocd dies between, or the job comes back.

On real daemons: tests/cluster/test_time_limits.py. A slurmctld that refuses is a stand-in here.
"""

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.adapters.store import Store
from slurm_coloc.config import Config, parse_config
from slurm_coloc.core.records.lists import SlottedJob, StretchedRun
from slurm_coloc.core.records.runs import Run
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeShape, PartitionShape
from slurm_coloc.core.slurm.job import JobView, Terms
from slurm_coloc.core.slurm.qos_limits import LimitOwner, SiteLimits
from slurm_coloc.core.time.stretch import Reserved
from slurm_coloc.errors import SlurmError
from slurm_coloc.flow.cluster.context import Context
from slurm_coloc.flow.cluster.telemetry import Live
from slurm_coloc.flow.time.limits import MAX_TRIES, Stretcher
from slurm_coloc.flow.watch.adopt import adopt

HOUR = 3600.0
IDS = {7: "0123456789ab", 8: "0123456789ac"}
SHAPE = ClusterShape(
    "c",
    (24, 11, 5),
    (NodeShape("n1", ("gpu",), (), None, 2, 78),),
    (PartitionShape("gpu", default=True, max_time_min=600),),
)


def view_of(job_id: int, **values: Any) -> JobView:
    wish = {
        "uid": 1000, "tres_per_node": "gres/shard:12", "partition": "gpu", "nodes": "n1",
        "admin_comment": f"coloc:1:{IDS[job_id]}:collocate:fits:12", "requeue": True,
        "batch": True, "start_s": time.time() - 3310,
    }  # fmt: skip
    return JobView(job_id, "RUNNING", **(wish | values))


class Slurm:
    """Jobs 7 and 8; ``refuse``: the words of every refusal; ``slow``: what is ordered is done, and
    nobody hears of it."""

    def __init__(self) -> None:
        self.views = {7: view_of(7), 8: view_of(8)}
        self.limits: dict[str, float | None] = {"7": HOUR, "8": HOUR}
        self.reserved: list[Reserved] = []
        self.refuse = ""
        self.slow = False
        self.updates: list[tuple[str, Any]] = []
        self.notices: list[str] = []

    async def job(self, job_id: int) -> JobView | None:
        return self.views.get(job_id)

    async def terms(self, handle: str) -> Terms:
        return Terms(0, self.limits[handle])

    async def reservations(self) -> list[Reserved]:
        return self.reserved

    async def notify(self, handle: str, text: str) -> None:
        self.notices.append(text)

    async def update(self, handle: str, **fields: Any) -> None:
        self.updates.append((handle, fields["TimeLimit"]))
        if self.refuse:
            raise SlurmError(self.refuse, "slurm-refused")
        self.limits[handle] = fields["TimeLimit"] * 60.0
        if self.slow:
            raise SlurmError("no answer within 10 s", "slurm-away")


class World:
    """A store with two shares on one GPU, of which 8 came ``later_s`` after 7."""

    def __init__(self, folder: Path, **slowdown: Any) -> None:
        self.store, self.slurm = Store.open(folder), Slurm()
        self.config = parse_config({"slowdown": slowdown}, "test")
        self.live = Live(self.store)
        self.limits = SiteLimits()
        self.off = False
        for job_id, view in self.slurm.views.items():
            assert adopt(Config(), self.store, SHAPE, view)
            self.see(view)
            self.store._db.execute("UPDATE decisions SET smact = 0.8 WHERE job_id IS NULL")
            self.store.decisions.bind(IDS[job_id], job_id)

    def see(self, view: JobView, **more: Any) -> None:
        self.store.runs.see(
            Run(
                decision=IDS[view.job_id], job_id=view.job_id, restart=view.restarts,
                uid=1000, submit_s=1.0, state=view.state, node="n1",
                tres=view.tres, start_s=view.start_s,
            )
        )  # fmt: skip
        values = {"gpu_uuids": '["GPU-1"]', **more}
        for name, value in values.items():
            sql = f"UPDATE runs SET {name} = ? WHERE job_id = ? AND restart = ?"
            self.store._db.execute(sql, (value, view.job_id, view.restarts))

    def go(self, rounds: int = 1) -> Stretcher:
        """Rounds of a colocd that knows nothing but its database."""
        one = None
        for _ in range(rounds):
            around = Context(
                self.config, self.store, self.slurm, self.live, lambda: self.off, lambda: SHAPE,  # type: ignore[arg-type]
                lambda: self.limits,
            )  # fmt: skip
            one = Stretcher(around)
            asyncio.run(one.round())
        assert one is not None
        return one

    def row(self, job_id: int = 7, restart: int = 0) -> StretchedRun:
        found = self.store.stretches.of(IDS[job_id], job_id, restart)
        assert found is not None
        return found

    def told(self, job_id: int = 7, kind: str = "limit") -> list[str]:
        story = self.store.events(IDS[job_id], job_id)
        return [line.text for line in story if line.kind == kind]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_both_are_stretched_once_and_told(world: World) -> None:
    world.go(rounds=3)
    assert [handle for handle, _ in world.slurm.updates] == ["7", "8"]
    row = world.row()
    lost_s = row.lost_s
    assert 300 < lost_s < 2500 and row.set_s >= HOUR + lost_s
    assert row.set_s <= HOUR + lost_s + 300 + 60 and row.times == 1
    (line,) = world.told()
    assert line.startswith("time limit 1 h is ") and "beside others" in line
    assert world.slurm.notices[0] == f"coloc: {line}"


def test_alone_it_is_left_alone(world: World) -> None:
    world.see(world.slurm.views[8], gpu_uuids='["GPU-2"]')
    world.go(rounds=2)
    assert world.slurm.updates == [] and world.row().lost_s == 0


def test_early_it_is_left_alone(world: World) -> None:
    for job_id in IDS:
        world.slurm.views[job_id] = view_of(job_id, start_s=time.time() - 1800)
        world.see(world.slurm.views[job_id], start_s=time.time() - 1800)
    world.go(rounds=2)
    assert world.slurm.updates == [] and world.row().lost_s > 100


def test_a_neighbour_that_left_counts_for_its_time(world: World) -> None:
    ended = {"start_s": time.time() - 3310, "end_s": time.time() - 2310, "open": 0}
    world.see(world.slurm.views[8], outcome="completed", **ended)
    world.go()
    both = world.row().lost_s
    assert 100 < both < 900
    world.go()
    assert world.row().lost_s == both


def test_its_owners_own_limit_stays(world: World) -> None:
    world.go()
    world.slurm.updates.clear()
    world.slurm.limits["7"] = 4000.0
    # near its end again
    world.store.stretches.change(world.row(), start_s=time.time() - 6500, lost_s=3000.0)
    world.go(rounds=2)
    assert world.slurm.updates == [] and world.row().state == "theirs"
    assert "left as it is" in world.told()[-1]


def test_unlimited_switched_off_and_not_wanted(tmp_path: Path) -> None:
    for name in ("unlimited", "off", "no"):
        (tmp_path / name).mkdir()
    unlimited = World(tmp_path / "unlimited")
    unlimited.slurm.limits = {"7": None, "8": None}
    off = World(tmp_path / "off")
    off.off = True
    unwanted = World(tmp_path / "no", stretch="off")
    for one in (unlimited, off, unwanted):
        one.go(rounds=2)
        assert one.slurm.updates == []
        assert one.row().lost_s > 0  # told all the same


@pytest.mark.parametrize(("minutes", "why"), [(70, "MaxWall of QOS gold"), (61, "x")])
def test_what_the_site_allows(world: World, minutes: int, why: str) -> None:
    if why == "x":
        begins = world.slurm.views[7].start_s or 0
        world.slurm.reserved = [Reserved("x", "n[1-4]", begins + 61 * 60 + 5, None)]
    else:
        world.limits = SiteLimits(qos={"normal": LimitOwner(qos="gold", max_wall_s=70 * 60.0)})
    world.go(rounds=2)
    assert world.slurm.updates == [("7", minutes), ("8", minutes)]
    assert why in world.told()[-1]
    # no more than that, and told once
    world.store.stretches.change(world.row(), start_s=time.time() - minutes * 60 + 20)
    world.slurm.updates.clear()
    world.go(rounds=3)
    assert world.slurm.updates == [] and len(world.told()) <= 2


@pytest.mark.parametrize("reserved", ["n2", "n[2-9]", "n[1-4]"])
def test_a_reservation_of_one_of_its_nodes(
    world: World, reserved: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = tuple(replace(SHAPE.nodes[0], name=name) for name in ("n1", "n2", "n3"))
    monkeypatch.setattr(f"{__name__}.SHAPE", replace(SHAPE, nodes=nodes))
    world.slurm.views[7] = replace(world.slurm.views[7], nodes="n[1-2]")
    begins = world.slurm.views[7].start_s or 0
    world.slurm.reserved = [
        Reserved("x", reserved, begins + 61 * 60 + 5, None),
        Reserved("y", "n3", begins, None),
    ]
    world.go()
    assert world.slurm.updates[0] == ("7", 61)


def test_put_back_it_has_the_original_again(world: World) -> None:
    world.go()
    world.slurm.updates.clear()
    world.see(world.slurm.views[7], open=0, outcome="requeued", end_s=time.time())
    world.slurm.views[7] = replace(world.slurm.views[7], state="PENDING", restarts=1, start_s=None)
    world.see(world.slurm.views[7], gpu_uuids=None)
    world.go(rounds=2)
    assert world.slurm.updates == [("7", 60)] and world.row().state == "restored"
    assert "again: it starts anew" in world.told()[-1]


def test_it_began_before_it_had_the_original_again(world: World) -> None:
    """colocd was away at the requeue: the run that goes on gets it, while that is far enough."""
    world.go()
    world.slurm.updates.clear()
    world.see(world.slurm.views[7], open=0, outcome="requeued", end_s=time.time())
    world.slurm.views[7] = view_of(7, restarts=1, start_s=time.time() - 60)
    world.see(world.slurm.views[7])
    world.go(rounds=2)
    assert world.slurm.updates == [("7", 60)]
    assert (world.row(restart=1).base_s, world.row(restart=1).set_s) == (HOUR, None)


def test_a_slot_ends_by_its_own_rule(world: World) -> None:
    """What is left of its time is the slots' to set; theirs first, then nothing is ours to do."""
    now = time.time()
    world.go()
    world.slurm.updates.clear()
    slot = SlottedJob(
        decision=IDS[7], job_id=7, uid=1000, total_s=None, created_s=now, updated_s=now
    )
    world.store.slots.add(slot)
    world.see(world.slurm.views[7], open=0, outcome="slot", end_s=now)
    world.slurm.views[7] = replace(world.slurm.views[7], state="PENDING", restarts=1, start_s=None)
    world.see(world.slurm.views[7], gpu_uuids=None)
    world.go()
    assert world.slurm.updates == [] and world.row().state == "open"
    found = world.store.slots.of(IDS[7], 7)
    assert found is not None
    world.store.slots.change(found, restart=1, placed=1)
    world.slurm.limits["7"] = 1800.0  # by the slots
    world.go()
    assert world.slurm.updates == [] and world.row().state == "restored"


def test_a_run_that_began_before_its_slot_was_bounded(world: World) -> None:
    """Its limit is still that of the slot before; what it is stretched from is what was left."""
    now = time.time()
    world.go()
    world.slurm.updates.clear()
    slot = SlottedJob(
        decision=IDS[7], job_id=7, uid=1000, total_s=None, created_s=now, updated_s=now
    )
    world.store.slots.add(slot)
    world.see(world.slurm.views[7], open=0, outcome="slot", end_s=now - 1700)
    world.slurm.views[7] = view_of(7, restarts=1, start_s=now - 1600)
    world.see(world.slurm.views[7])
    world.go(rounds=2)
    assert world.slurm.updates == [] and world.store.stretches.of(IDS[7], 7, 1) is None
    found = world.store.slots.of(IDS[7], 7)
    assert found is not None
    world.store.slots.change(found, restart=1, placed=1)
    world.slurm.limits["7"] = 1800.0  # by the slots
    world.go()
    row = world.row(restart=1)
    assert row.base_s == 1800 and row.state == "open" and row.lost_s > 300
    assert [handle for handle, _ in world.slurm.updates] == ["7"] and row.set_s > 1800 + 300


def test_an_order_that_got_no_answer_is_ours(world: World) -> None:
    world.slurm.slow = True
    world.go()
    assert len(world.slurm.updates) == 2 and world.row().set_s is None
    world.slurm.slow = False
    world.go(rounds=2)
    row = world.row()
    assert (row.state, row.times, row.set_s) == ("open", 1, world.slurm.limits["7"])
    assert len(world.slurm.updates) == 2
    (line,) = world.told()
    assert "beside others" in line and world.slurm.notices[0] == f"coloc: {line}"


def test_one_that_was_lost_is_given_again_and_its_owners_limit_stays(world: World) -> None:
    world.slurm.refuse = "no"
    world.go()
    world.slurm.limits["7"] = 4000.0
    world.slurm.refuse = ""
    world.go()
    assert [handle for handle, _ in world.slurm.updates] == ["7", "8", "8"]
    assert (world.row(7).state, world.row(8).times) == ("theirs", 1)


def test_refused_for_ever(world: World) -> None:
    world.slurm.refuse = "no"
    world.go(rounds=MAX_TRIES + 3)
    assert len(world.slurm.updates) == 2 * MAX_TRIES and world.row().state == "failed"


def test_measured_parts_count(world: World) -> None:
    """By the agents' figures, where they are there: a neighbour that does nothing costs nothing."""
    parts = [{"job_id": 7, "mib": 1, "smact": 0.5}, {"job_id": 8, "mib": 1, "smact": 0.0}]
    gpu = {"uuid": "GPU-1", "total_mib": 40536, "free_mib": 9, "smact": 0.5, "jobs": parts}
    world.live.take("n1", {"gpus": [gpu]})
    world.go()
    assert world.row(7).lost_s < 5 and world.slurm.updates == []


def test_runs_whose_prolog_found_no_colocd(world: World) -> None:
    """The agents see where they are."""
    for view in world.slurm.views.values():
        world.see(view, gpu_uuids=None)
    world.go()
    assert world.row().lost_s == 0
    parts = [{"job_id": 7, "mib": 1, "smact": 0.5}, {"job_id": 8, "mib": 1, "smact": 0.45}]
    gpu = {"uuid": "GPU-1", "total_mib": 40536, "free_mib": 9, "smact": 0.95, "jobs": parts}
    world.live.take("n1", {"gpus": [gpu]})
    world.go()
    assert [handle for handle, _ in world.slurm.updates] == ["7", "8"]


def test_a_gpu_is_closed_and_opened_again(world: World) -> None:
    world.store._db.execute("UPDATE decisions SET max_slowdown = 1.1 WHERE id = ?", (IDS[7],))
    stretcher = world.go()
    assert stretcher.closed == {"GPU-1"}
    (line,) = world.told(kind="slowdown")
    assert "times slower than alone beside one other job, 1.1 at most" in line
    assert "nothing keeps others away" in line  # native, without a gate
    asyncio.run(stretcher.round())
    assert stretcher.closed and len(world.told(kind="slowdown")) == 1
    world.go()
    assert len(world.told(kind="slowdown")) == 1  # colocd began anew: not told twice
    ended = {"end_s": time.time(), "open": 0, "outcome": "completed"}
    world.see(world.slurm.views[8], **ended)
    asyncio.run(stretcher.round())
    assert stretcher.closed == frozenset()
    assert "open to others again" in world.told(kind="slowdown")[-1]
