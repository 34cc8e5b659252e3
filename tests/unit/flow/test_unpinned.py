# SPDX-License-Identifier: Apache-2.0
"""Stage place: which jobs lose a pin, and whose a node list is."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.adapters.store import Store
from slurm_coloc.core.records.lists import PutBack
from slurm_coloc.core.slurm.job import JobView
from slurm_coloc.flow.watch.adopt import adopt
from tests.unit.flow.placers import ID, JOB, MARK, PINNED, SHAPE, Slurm, Update, placer, run

FREE: Update = {"TresPerNode": "gres/shard:12", "ReqNodeList": ""}


@pytest.fixture(autouse=True)
def pinned(store: Store) -> None:
    """colocd pinned the job to n1."""
    store.note(ID, 7, "place", "n1 GPU a100-1 by auto: idle")


def closed(slurm: Slurm, *names: str) -> Slurm:
    slurm.uses = [replace(use, usable=use.name not in names) for use in slurm.uses]
    return slurm


# the length of the queue


def others(count: int, **values: Any) -> list[Any]:
    first = replace(JOB, priority=2000, admin_comment="", tres_per_node="gres/gpu:1", **values)
    return [replace(first, job_id=100 + n, handle=str(100 + n)) for n in range(count)]


def test_jobs_that_cannot_start_keep_no_share_out_of_a_round(store: Store, tmp_path: Path) -> None:
    slurm = Slurm(*others(500, reason="Dependency"), JOB)
    run(placer(store, slurm, tmp_path))
    assert slurm.updates == [("7", {"TresPerNode": "gres/shard:a100-0:12", "ReqNodeList": "n1"})]


def test_a_long_queue_leaves_no_pin_behind(store: Store, tmp_path: Path) -> None:
    slurm = closed(Slurm(*others(500), replace(PINNED, reason="Dependency")), "n1", "n2")
    run(placer(store, slurm, tmp_path))
    assert slurm.updates == [("7", FREE)]


# jobs that may be pinned no longer


@pytest.mark.parametrize(
    "change",
    [
        {"reservation": "course", "reason": "Reservation"},
        {"cut": True, "exc_nodes": "m1," * 85},
        {"features": "[rack1*2]"},
        {"num_nodes": 2},
    ],
)
def test_it_loses_its_pin_once(store: Store, tmp_path: Path, change: dict[str, Any]) -> None:
    slurm = Slurm(replace(PINNED, **change))
    one = placer(store, slurm, tmp_path)
    run(one)
    assert slurm.updates == [("7", FREE)]
    slurm.jobs = [replace(JOB, **change)]
    run(one, 2)
    assert len(slurm.updates) == 1


def test_what_a_recovery_works_on_keeps_it(store: Store, tmp_path: Path) -> None:
    row = PutBack(ID, 7, 0, uid=1000, node="n1", why="", was="", base=0, created_s=1, updated_s=1)
    store.putbacks.add(row)
    slurm = Slurm(replace(PINNED, reservation="course"))
    run(placer(store, slurm, tmp_path))
    assert slurm.updates == []


# whose a node list is


def test_an_owner_s_later_node_stays(store: Store, tmp_path: Path) -> None:
    """By scontrol update, of a job that is pinned elsewhere."""
    slurm = closed(Slurm(replace(PINNED, req_nodes="n2")), "n2")
    run(placer(store, slurm, tmp_path))
    assert slurm.updates == [("7", {"TresPerNode": "gres/shard:12"})]


def test_it_stays_after_the_next_pin_too(store: Store, tmp_path: Path) -> None:
    slurm = Slurm(replace(JOB, req_nodes="n2"))
    run(placer(store, slurm, tmp_path))
    assert slurm.updates == [("7", {"TresPerNode": "gres/shard:a100-0:12"})]
    there = replace(PINNED, tres_per_node="gres/shard:a100-0:12", req_nodes="n2")
    slurm = closed(Slurm(there), "n2")
    run(placer(store, slurm, tmp_path))
    assert slurm.updates == [("7", {"TresPerNode": "gres/shard:12"})]


def test_a_node_stays_where_nobody_knows_whose_it_is(store: Store, tmp_path: Path) -> None:
    """A colocd that takes a job over knows nothing of its submission."""
    mark = MARK.replace(ID, "ba9876543210")
    tres = "gres/shard:a100-1:12"
    view = JobView(8, "PENDING", uid=1000, admin_comment=mark, tres_per_node=tres, partition="gpu")
    one = placer(store, Slurm(), tmp_path)
    assert adopt(one._config, store, SHAPE, view)
    slurm = closed(Slurm(replace(PINNED, job_id=8, handle="8", admin_comment=mark)), "n1", "n2")
    run(placer(store, slurm, tmp_path))
    assert slurm.updates == [("8", {"TresPerNode": "gres/shard:12"})]


def test_a_pin_without_an_event_is_ours(store: Store, tmp_path: Path) -> None:
    """Slurm carried out an update, and colocd ended before it noted that."""
    store._db.execute("""UPDATE decisions SET request = '{"uid": 1000}'""")
    there = replace(PINNED, tres_per_node="gres/shard:a100-0:12", req_nodes="n2")
    slurm = closed(Slurm(there), "n1", "n2")
    run(placer(store, slurm, tmp_path))
    assert slurm.updates == [("7", FREE)]


def test_a_recovered_task_of_an_array_is_bound_to_no_node(store: Store, tmp_path: Path) -> None:
    """Its pin was noted before it had a number of its own."""
    store.note(ID, 6, "place", "n1 GPU a100-0 by auto: idle")
    store.note(ID, 6, "place", "n2 GPU a100-0 by auto: idle")
    task = replace(PINNED, job_id=8, handle="6_0", array_id=6, restarts=1)
    slurm = Slurm(replace(task, tres_per_node="gres/gpu:1"))
    run(placer(store, slurm, tmp_path))
    assert slurm.updates == [("6_0", {"ReqNodeList": ""})]


# the off file


def test_with_the_off_file_all_pins_go(store: Store, tmp_path: Path) -> None:
    slurm = Slurm(PINNED)
    one = placer(store, slurm, tmp_path)
    run(one)
    assert slurm.updates == []
    one._off = lambda: True
    run(one)
    assert slurm.updates == [("7", FREE)]
    slurm.jobs = [JOB]
    run(one, 2)
    assert len(slurm.updates) == 1
    slurm.jobs = [PINNED]  # colocd reads no queue any more
    run(one)
    assert len(slurm.updates) == 1
    one._off = lambda: False
    store.note(ID, 7, "place", "n1 GPU a100-1 by auto: idle")
    run(one)
    one._off = lambda: True
    run(one)
    assert slurm.updates[1:] == [("7", FREE)]


def test_with_the_off_file_nobody_waits_at_the_gate(store: Store, tmp_path: Path) -> None:
    slurm = Slurm(replace(JOB, reason="Constraints"))
    slurm.extras["7"] = "smact<1&((coloc>=1&coloc<=2))"
    one = placer(store, slurm, tmp_path)
    one._off = lambda: True
    run(one)
    assert slurm.updates == [("7", {"Extra": "smact>=0"})]
